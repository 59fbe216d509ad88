/* kernels/x86/load_bf16_avx2.h - bf16 weights, widened exactly: a 32-bit lane holds rows
 * (even, odd) of K; the even row is the lane shifted left by 16, the odd row the lane with
 * its low half cleared. */
#ifndef KERNELS_X86_LOAD_BF16_AVX2_H
#define KERNELS_X86_LOAD_BF16_AVX2_H

#include <immintrin.h>
#include <stdint.h>

/* Taken from memory each time: the sums, B and A leave no register for it. */
static const uint32_t odd_row[8]
    __attribute__((aligned(32))) = {0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
                                    0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};

/* Each row loads the lanes again: keeping them for both rows would need one register more
 * than there are. */
static inline __attribute__((always_inline)) __m256 tile_widen(const char *b, const int j)
{
    __m256 row;

    if (j == 0)
        __asm__("vmovdqu %1, %0\n\tvpslld $16, %0, %0"
                : "=x"(row)
                : "m"(*(const __m256i_u *)b));
    else
        __asm__("vmovdqu %1, %0\n\tvpand %2, %0, %0"
                : "=&x"(row)
                : "m"(*(const __m256i_u *)b), "m"(odd_row));
    return row;
}

#define TILE_STEP_ROWS     2
#define TILE_STEP_BYTES    64
#define TILE_LOAD(b, j, h) tile_widen((b) + 32 * (h), j)

#endif
