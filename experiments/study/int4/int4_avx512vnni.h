/* experiments/study/int4/int4_avx512vnni.h - int4.h by VPDPBUSD, as
 * kernels/x86/gemm_a8_avx512vnni.h.
 *
 * An including file defines INT4_SIGNED and INT4_FORM. */
#ifndef STUDY_INT4_AVX512VNNI_H
#define STUDY_INT4_AVX512VNNI_H

#include "experiments/study/int4/int4.h"

#define QUANT Q4_0
#include "kernels/x86/a_group_avx512.h"
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

/* In place, for the reason given in gemm_tile_avx512.h. *a is in every lane. */
#define TILE_DOT_AT(c, a, w)                                                             \
    __asm__("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(a)), "v"(w))
#define TILE_XOR_AT(x, a, y)                                                             \
    __asm__("vpxord %1%{1to16%}, %2, %0" : "=v"(x) : "m"(*(a)), "v"(y))
#define TILE_DOT(c, x, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(x), "v"(w))
#define TILE_FMA(c, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(x), "v"(y))

/* The codes of two vectors from 64 bytes of straight order. */
TILE_INLINE void unpack(__m512i w[2], const char *at)
{
    const __m512i low_bits = _mm512_set1_epi8(15);
    __m512i x, low, high;

    /* Load again, and not before what comes before is done: registers are scarce. */
    __asm__ volatile("" : "+r"(at)::"memory");
    x = _mm512_loadu_si512(at);
    low = _mm512_and_si512(x, low_bits);
    high = _mm512_and_si512(_mm512_srli_epi16(x, 4), low_bits);
    w[0] = _mm512_unpacklo_epi8(low, high);
    w[1] = _mm512_unpackhi_epi8(low, high);
    if (INT4_SIGNED) {
        w[0] = _mm512_sub_epi8(w[0], _mm512_set1_epi8(KERN_Q4_0_ZERO));
        w[1] = _mm512_sub_epi8(w[1], _mm512_set1_epi8(KERN_Q4_0_ZERO));
    }
}

/* A vector of weights times quad j of every row's activations. `more` becomes 128 times the
 * sum of the weights. */
TILE_INLINE void vector_dots(__m512i dot[TILE_MR_MAX], __m512i *more, __m512i w,
                             const int32_t *a, const int j, const int mr)
{
    const __m512i half = _mm512_set1_epi8(-128);

    if (INT4_SIGNED)
        TILE_DOT(*more, half, w);
#pragma GCC unroll 12
    for (int i = 0; i < mr; i++) {
        if (INT4_SIGNED) {
            __m512i x;

            TILE_XOR_AT(x, &a[j * mr + i], half);
            TILE_DOT(dot[i], x, w);
        } else {
            TILE_DOT_AT(dot[i], &a[j * mr + i], w);
        }
    }
}

/* 32 rows of K: the sub-block at s of the block at b. */
TILE_INLINE void tile_sub(__m512 sum[4][TILE_MR_MAX], const int32_t *a, const char *b,
                          const char *s, size_t panel, const int mr, const int np)
{
    const float *factor = (const float *)(a + KERN_A_I8_SCALE * mr);
    const int32_t *word = a + KERN_A_I8_SUM * mr;
    __m512i dot[TILE_MR_MAX], more = _mm512_setzero_si512();
    __m512 scale;

    (void)panel;
    (void)np;
#pragma GCC unroll 12
    for (int i = 0; i < mr; i++)
        dot[i] = INT4_SIGNED ? _mm512_setzero_si512() : _mm512_set1_epi32(word[i]);
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        __m512i w[2];

        unpack(w, s + 64 * v);
        vector_dots(dot, &more, w[0], a, 2 * v, mr);
        vector_dots(dot, &more, w[1], a, 2 * v + 1, mr);
    }
    scale = scales(b, s, 0);
#pragma GCC unroll 12
    for (int i = 0; i < mr; i++) {
        __m512i x = INT4_SIGNED ? _mm512_sub_epi32(dot[i], more) : dot[i];

        TILE_FMA(sum[0][i], _mm512_cvtepi32_ps(x),
                 _mm512_mul_ps(scale, _mm512_set1_ps(factor[i])));
    }
}

#include "kernels/x86/quant_run_avx512.h"

INT4_VARIANT(avx512vnni, .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512VNNI),
             .fn.gemm = tile_dispatch, .rows = TILE_ROWS, .vec_cols = 16,
             .a_group = a_group_avx512);

#endif
