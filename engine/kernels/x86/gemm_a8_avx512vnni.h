/* kernels/x86/gemm_a8_avx512vnni.h - quantised weights times activations of 8 bits by
 * VPDPBUSD, written once: it multiplies four unsigned codes of each of 16 columns with four
 * signed activations and adds the products to 32-bit sums. Nothing saturates.
 *
 * One panel: each row has its integer sums and its f32 sums in registers, and the activations
 * are broadcast as operands from memory. */
#ifndef KERNELS_X86_GEMM_A8_AVX512VNNI_H
#define KERNELS_X86_GEMM_A8_AVX512VNNI_H

#include "kernels/x86/codes_avx512.h"

#define TILE_MR_MAX 12
#define TILE_ROWS                                                                        \
    {                                                                                    \
        12                                                                               \
    }
#define TILE_SET(X)      TILE_UP_12(X, 1)
#define TILE_SETS(mr)    1
#define TILE_A_WORDS     KERN_A_I8_WORDS
#define TILE_SPARSE_ROWS 2

/* The compiler broadcasts by way of a general register, which costs an operation on the ports
 * that multiply. */
#define TILE_START_AT(c, a) __asm__("vpbroadcastd %1, %0" : "=v"(c) : "m"(*(a)))
/* In place, for the reason given in gemm_tile_avx512.h. *a is in every lane. */
#define TILE_DOT_AT(c, a, w)                                                             \
    __asm__("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(a)), "v"(w))
#define TILE_FMA(c, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(x), "v"(y))
#define TILE_FNMA_AT(c, a, y)                                                            \
    __asm__("vfnmadd231ps %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(a)), "v"(y))

/* 32 rows of K: the sub-block at s of the block at b. */
TILE_INLINE void tile_sub(__m512 sum[4][TILE_MR_MAX], const int32_t *a, const char *b,
                          const char *s, const int mr)
{
    const float *factor = (const float *)(a + KERN_A_I8_SCALE * mr);
    const int32_t *word = a + KERN_A_I8_SUM * mr;

#pragma GCC unroll 2
    for (int h = 0; h < TYPE(HALVES); h++, word += mr) {
        __m512i dot[TILE_MR_MAX];
        __m512 scale;

#pragma GCC unroll 12
        for (int i = 0; i < mr; i++) {
            if (TYPE(MIN))
                dot[i] = _mm512_setzero_si512();
            else
                TILE_START_AT(dot[i], &word[i]);
        }
#pragma GCC unroll 8
        for (int j = 8 / TYPE(HALVES) * h; j < 8 / TYPE(HALVES) * (h + 1); j++) {
            __m512i w = codes(s, j);

#pragma GCC unroll 12
            for (int i = 0; i < mr; i++)
                TILE_DOT_AT(dot[i], &a[j * mr + i], w);
        }
        scale = scales(b, s, h);
#pragma GCC unroll 12
        for (int i = 0; i < mr; i++)
            TILE_FMA(sum[0][i], _mm512_cvtepi32_ps(dot[i]),
                     _mm512_mul_ps(scale, _mm512_set1_ps(factor[i])));
        if (TYPE(MIN)) {
            __m512 min = mins(b, s, h);

#pragma GCC unroll 12
            for (int i = 0; i < mr; i++)
                TILE_FNMA_AT(sum[0][i], (const float *)&word[i], min);
        }
    }
}

#include "kernels/x86/quant_run_avx512.h"

#endif
