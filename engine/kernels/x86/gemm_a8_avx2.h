/* kernels/x86/gemm_a8_avx2.h - quantised weights times activations of 8 bits, written once
 * around the products of integers.
 *
 * One panel, as two sides of 8 columns. Include it after the header of dots(). */
#ifndef KERNELS_X86_GEMM_A8_AVX2_H
#define KERNELS_X86_GEMM_A8_AVX2_H

#include "kernels/x86/quant_run_avx2.h"

/* In place, for the reason given in gemm_tile_avx512.h. */
#define TILE_FMA(c, x, b)  __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(x), "x"(b))
#define TILE_FNMA(c, x, b) __asm__("vfnmadd231ps %2, %1, %0" : "+x"(c) : "x"(x), "x"(b))

/* Add one side's sums of integers of half h (of TYPE(HALVES)) to its sums in f32, which are in
 * `sum`, or where that is NULL, at c. a: the words of 32 activations. */
TILE_INLINE void add_dots(__m256 *sum, float *c, const int32_t *a,
                          const __m256i dot[TILE_MR_MAX], const __m256 scale,
                          const __m256 min, const int h, const int mr)
{
    const float *factor = (const float *)a + KERN_A_I8_SCALE * mr;
    const float *word = (const float *)a + (KERN_A_I8_SUM + h) * mr;

#pragma GCC unroll 8
    for (int i = 0; i < mr; i++, c += KERN_PANEL) {
        const __m256 x = _mm256_mul_ps(scale, _mm256_broadcast_ss(&factor[i]));
        __m256 y = _mm256_cvtepi32_ps(dot[i]);

        if (sum) {
            TILE_FMA(sum[i], y, x);
            if (TYPE(MIN))
                TILE_FNMA(sum[i], _mm256_broadcast_ss(&word[i]), min);
        } else {
            y = _mm256_fmadd_ps(y, x, _mm256_loadu_ps(c));
            if (TYPE(MIN))
                TILE_FNMA(y, _mm256_broadcast_ss(&word[i]), min);
            _mm256_storeu_ps(c, y);
        }
    }
}

TILE_INLINE void tile_sub(__m256 sum[2][4][TILE_MR_MAX], float *c, const void *block,
                          const char *b, const char *s, const int mr)
{
    const int32_t *a = block;
    const int sides = TILE_SIDES(mr, DOTS_FRESH);

#pragma GCC unroll 2
    for (int side = 0; side < 2; side += sides) {
#pragma GCC unroll 2
        for (int h = 0; h < TYPE(HALVES); h++) {
            __m256i dot[2][TILE_MR_MAX];

            dots(dot, a, s, h, side, mr, DOTS_FRESH);
#pragma GCC unroll 2
            for (int x = 0; x < sides; x++) {
                const __m256 scale = scales(b, s, h, side + x);
                const __m256 min = TYPE(MIN) ? mins(b, s, h, side + x) : scale;

                add_dots(mr > TILE_KEPT ? NULL : sum[side + x][0], c + 8 * (side + x), a,
                         dot[x], scale, min, h, mr);
            }
        }
    }
}

TILE_DISPATCH

#endif
