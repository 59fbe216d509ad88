/* kernels/x86/tile_amx.h - tile registers (AMX): up to 16 rows of up to 64 bytes each.
 *
 * Tiles are this thread's from the first instruction to the last of a call, or of a slice's calls,
 * and released then, so that no switch of threads has to save them. To configure and release them
 * takes as long as multiplying 250 rows of K.
 *
 * The tile instructions are written out here: with the compiler's own, a load does not depend on
 * what was stored before it. */
#ifndef KERNELS_X86_TILE_AMX_H
#define KERNELS_X86_TILE_AMX_H

#include <stdint.h>

#define AMX_ROWS   16
#define AMX_BYTES  1024
#define AMX_TILES  8
#define AMX_INLINE static inline __attribute__((always_inline))

/* The shapes of tiles, as LDTILECFG reads them. */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#define AMX_LOAD(tile, at, stride)                                                       \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(at), "r"((int64_t)(stride)),  \
                     "i"(tile)                                                           \
                     : "memory")
#define AMX_STORE(tile, at, stride)                                                      \
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(at), "r"((int64_t)(stride)), \
                     "i"(tile)                                                           \
                     : "memory")
#define AMX_ZERO(tile)   __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile))
#define AMX_RELEASE()    __asm__ volatile("tilerelease")
#define AMX_CONFIGURE(c) __asm__ volatile("ldtilecfg %0" ::"m"(c))

#endif
