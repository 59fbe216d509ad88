/* kernels/x86/gemm_a8_avx512vnni.h - quantised weights times activations of 8 bits by
 * VPDPBUSD, written once: it multiplies four unsigned codes of each of 16 columns with four
 * signed activations and adds the products to 32-bit sums. Nothing saturates.
 *
 * One panel: each row has its integer sums and its f32 sums in registers, and the activations
 * are broadcast as operands from memory. Two panels: half as many rows, and an activation is
 * loaded once for both. Where K is long and many rows share the panels, the loads of one panel
 * take as long as the multiplications (two of each in a cycle). */
#ifndef KERNELS_X86_GEMM_A8_AVX512VNNI_H
#define KERNELS_X86_GEMM_A8_AVX512VNNI_H

#include "kernels/x86/codes_avx512.h"

#define TILE_MR_MAX 12
#define TILE_ROWS                                                                        \
    {                                                                                    \
        12, 6                                                                            \
    }
#define TILE_SET(X)      TILE_UP_12(X, 1) TILE_UP_6(X, 2)
#define TILE_SETS(mr)    1
#define TILE_A_WORDS     KERN_A_I8_WORDS
#define TILE_SPARSE_ROWS 2

/* The compiler broadcasts by way of a general register, which costs an operation on the ports
 * that multiply. */
#define TILE_START_AT(c, a) __asm__("vpbroadcastd %1, %0" : "=v"(c) : "m"(*(a)))
/* In place, for the reason given in gemm_tile_avx512.h. *a is in every lane. */
#define TILE_DOT_AT(c, a, w)                                                             \
    __asm__("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(a)), "v"(w))
#define TILE_DOT(c, a, w) __asm__("vpdpbusd %1, %2, %0" : "+v"(c) : "v"(a), "v"(w))
#define TILE_FMA(c, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(x), "v"(y))
#define TILE_FNMA_AT(c, a, y)                                                            \
    __asm__("vfnmadd231ps %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(a)), "v"(y))

/* The integer sums of 4 rows of K. */
TILE_INLINE void tile_dots(__m512i dot[2][TILE_MR_MAX], const int32_t *a, const char *s,
                           size_t panel, const int j, const int mr, const int np)
{
    __m512i w[2];

#pragma GCC unroll 2
    for (int p = 0; p < np; p++)
        w[p] = codes(s + (size_t)p * panel, j);
#pragma GCC unroll 12
    for (int i = 0; i < mr; i++) {
        __m512i x;

        if (np == 1) {
            TILE_DOT_AT(dot[0][i], &a[i], w[0]);
            continue;
        }
        TILE_START_AT(x, &a[i]);
#pragma GCC unroll 2
        for (int p = 0; p < np; p++)
            TILE_DOT(dot[p][i], x, w[p]);
    }
}

/* 32 rows of K: the sub-block at s of the block at b, and those of the panels after it. */
TILE_INLINE void tile_sub(__m512 sum[4][TILE_MR_MAX], const int32_t *a, const char *b,
                          const char *s, size_t panel, const int mr, const int np)
{
    const float *factor = (const float *)(a + KERN_A_I8_SCALE * mr);
    const int32_t *word = a + KERN_A_I8_SUM * mr;

#pragma GCC unroll 2
    for (int h = 0; h < TYPE(HALVES); h++, word += mr) {
        __m512i dot[2][TILE_MR_MAX];

#pragma GCC unroll 2
        for (int p = 0; p < np; p++)
#pragma GCC unroll 12
            for (int i = 0; i < mr; i++) {
                if (TYPE(MIN))
                    dot[p][i] = _mm512_setzero_si512();
                else
                    TILE_START_AT(dot[p][i], &word[i]);
            }
#pragma GCC unroll 8
        for (int j = 8 / TYPE(HALVES) * h; j < 8 / TYPE(HALVES) * (h + 1); j++)
            tile_dots(dot, a + j * mr, s, panel, j, mr, np);
#pragma GCC unroll 2
        for (int p = 0; p < np; p++) {
            const char *bp = b + (size_t)p * panel, *sp = s + (size_t)p * panel;
            const __m512 scale = scales(bp, sp, h);

#pragma GCC unroll 12
            for (int i = 0; i < mr; i++)
                TILE_FMA(sum[p][i], _mm512_cvtepi32_ps(dot[p][i]),
                         _mm512_mul_ps(scale, _mm512_set1_ps(factor[i])));
            if (TYPE(MIN)) {
                const __m512 min = mins(bp, sp, h);

#pragma GCC unroll 12
                for (int i = 0; i < mr; i++)
                    TILE_FNMA_AT(sum[p][i], (const float *)&word[i], min);
            }
        }
    }
}

#include "kernels/x86/quant_run_avx512.h"

#endif
