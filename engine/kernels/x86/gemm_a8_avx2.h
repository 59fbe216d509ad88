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

/* 32 rows of K of one side: the sub-block at s of the block at b. */
TILE_INLINE void tile_side(__m256 sum[4][TILE_MR_MAX], const struct kern_gemm_tile *t,
                           const void *block, const char *b, const char *s,
                           const int side, const int mr)
{
    const int32_t *a = block;
    const float *factor = (const float *)(a + KERN_A_I8_SCALE * mr);
    const int32_t *word = a + KERN_A_I8_SUM * mr;

#pragma GCC unroll 2
    for (int h = 0; h < TYPE(HALVES); h++, word += mr) {
        __m256i dot[TILE_MR_MAX];
        __m256 scale, min;

        dots_start(dot, a, h, mr);
        dots(dot, a, s, h, side, mr);
        scale = scales(b, s, h, side);
        min = TYPE(MIN) ? mins(b, s, side) : scale;
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            float *c = t->c + i * t->ldc + 8 * side;

            if (mr > TILE_KEPT)
                sum[0][i] = _mm256_loadu_ps(c);
            TILE_FMA(sum[0][i], _mm256_cvtepi32_ps(dot[i]),
                     _mm256_mul_ps(scale, _mm256_broadcast_ss(&factor[i])));
            if (TYPE(MIN))
                TILE_FNMA(sum[0][i], _mm256_broadcast_ss((const float *)&word[i]), min);
            if (mr > TILE_KEPT)
                _mm256_storeu_ps(c, sum[0][i]);
        }
    }
}

TILE_DISPATCH

#endif
