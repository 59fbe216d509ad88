/* kernels/x86/load_float_avx2.h - how a tile of f32 products reads weights of the type FLOAT
 * and widens them exactly: for gemm_tile_avx2.h, which is included after it.
 *
 * Of bf16 a 32-bit lane holds rows (even, odd) of K; the even row is the lane shifted left by
 * 16, the odd row the lane with its low half cleared. */
#ifndef KERNELS_X86_LOAD_FLOAT_AVX2_H
#define KERNELS_X86_LOAD_FLOAT_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/kern.h"

/* Taken from memory each time: the sums, B and A leave no register for it. */
static const uint32_t load_odd_row[8] __attribute__((aligned(32), unused)) = {
    0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
    0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};

/* Each row loads the lanes again: keeping them for both rows would need one register more
 * than there are. */
static inline __attribute__((always_inline)) __m256 load_bf16(const char *b, const int j)
{
    __m256 row;

    if (j == 0)
        __asm__("vmovdqu %1, %0\n\tvpslld $16, %0, %0"
                : "=x"(row)
                : "m"(*(const __m256i_u *)b));
    else
        __asm__("vmovdqu %1, %0\n\tvpand %2, %0, %0"
                : "=&x"(row)
                : "m"(*(const __m256i_u *)b), "m"(load_odd_row));
    return row;
}

enum {
    LOAD_F32_ROWS = 1,
    LOAD_F16_ROWS = 1,
    LOAD_BF16_ROWS = 2,
    LOAD_F32_BYTES = 64,
    LOAD_F16_BYTES = 32,
    LOAD_BF16_BYTES = 64
};
#define LOAD_F32_VEC(b, h, j) _mm256_loadu_ps((const float *)(b) + 8 * (h))
#define LOAD_F16_VEC(b, h, j)                                                            \
    _mm256_cvtph_ps(_mm_loadu_si128((const void *)((b) + 16 * (h))))
#define LOAD_BF16_VEC(b, h, j) load_bf16((b) + 32 * (h), j)

#define TILE_STEP_ROWS     KERN_PASTE(LOAD_, FLOAT, _ROWS)
#define TILE_STEP_BYTES    KERN_PASTE(LOAD_, FLOAT, _BYTES)
#define TILE_LOAD(b, j, h) KERN_PASTE(LOAD_, FLOAT, _VEC)(b, h, j)

#endif
