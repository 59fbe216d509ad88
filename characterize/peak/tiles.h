/* characterize/peak/tiles.h - the loop of an instruction that multiplies tile registers (AMX): four
 * tiles of sums, two of each operand, as products have them. The including file first defines
 * TILE_DOT (the instruction), TILE_ONE (ones of its operands, in 16 bits) and TILE_SUM (the type of
 * a sum). */
#ifndef CHARACTERIZE_PEAK_TILES_H
#define CHARACTERIZE_PEAK_TILES_H

#include "characterize/peak/peak.h"

/* The memory that LDTILECFG reads. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Ones times ones, so that the sums stay ordinary numbers. */
static double tile_dot(int64_t n_rounds)
{
    _Alignas(64) uint16_t ones[16 * 32];
    _Alignas(64) TILE_SUM sums[4][16 * 16];
    struct tile_config c = {.palette = 1};

    for (int i = 0; i < 16 * 32; i++)
        ones[i] = TILE_ONE;
    for (int i = 0; i < 8; i++)
        c.rows[i] = 16, c.row_bytes[i] = 64;
    __asm__ volatile("ldtilecfg %0\n\t"
                     "tileloadd (%1,%2,1), %%tmm4\n\t"
                     "tileloadd (%1,%2,1), %%tmm5\n\t"
                     "tileloadd (%1,%2,1), %%tmm6\n\t"
                     "tileloadd (%1,%2,1), %%tmm7" ::"m"(c),
                     "r"(ones), "r"((int64_t)64)
                     : "memory");
    for (int64_t r = 0; r < n_rounds; r++)
        __asm__ volatile(TILE_DOT " %tmm6, %tmm4, %tmm0\n\t" TILE_DOT
                                  " %tmm7, %tmm4, %tmm1\n\t" TILE_DOT
                                  " %tmm6, %tmm5, %tmm2\n\t" TILE_DOT
                                  " %tmm7, %tmm5, %tmm3");
    __asm__ volatile("tilestored %%tmm0, (%0,%4,1)\n\t"
                     "tilestored %%tmm1, (%1,%4,1)\n\t"
                     "tilestored %%tmm2, (%2,%4,1)\n\t"
                     "tilestored %%tmm3, (%3,%4,1)\n\t"
                     "tilerelease" ::"r"(sums[0]),
                     "r"(sums[1]), "r"(sums[2]), "r"(sums[3]), "r"((int64_t)64)
                     : "memory");
    return (double)sums[0][0] + (double)sums[1][0] + (double)sums[2][0] +
           (double)sums[3][0];
}
/* Operations of a round on numbers of `bytes` each. */
#define TILE_OPS(bytes) (4 * 2.0 * 16 * 16 * 64 / (bytes))

#endif
