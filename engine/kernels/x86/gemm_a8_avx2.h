/* kernels/x86/gemm_a8_avx2.h - quantised weights times activations of 8 bits by VPMADDUBSW,
 * written once. It multiplies unsigned with signed bytes and adds pairs of products to 16-bit
 * sums that saturate, so TILE_GROUP of its results are added before they are widened: as many
 * as cannot exceed 16 bits, whatever the codes and activations are. With codes of 8 bits even
 * one could. There the magnitudes of the signed weights, at most 128, are multiplied, and each
 * activation takes the sign of its weight.
 *
 * One panel, as two sides of 8 columns. An including file defines TYPE(x), see
 * codes_avx2.h. */
#ifndef KERNELS_X86_GEMM_A8_AVX2_H
#define KERNELS_X86_GEMM_A8_AVX2_H

#define TILE_MR_MAX 6
#define TILE_ROWS                                                                        \
    {                                                                                    \
        6                                                                                \
    }
#define TILE_SET(X)   TILE_UP_6(X, 1)
#define TILE_KEPT     2
#define TILE_SETS(mr) 1
#define TILE_A_WORDS  KERN_A_I8_WORDS

#include "kernels/x86/quant_run_avx2.h"

#define TILE_GROUP (TYPE(BITS) <= 5 ? 4 : TYPE(BITS) == 6 ? 2 : 1)
#define TILE_MOST  (TYPE(BITS) == 8 ? 128 : (1 << TYPE(BITS)) - 1)
_Static_assert(TILE_GROUP * 2 * TILE_MOST * 127 <= INT16_MAX, "16-bit sums overflow");

/* In place, for the reason given in gemm_tile_avx512.h. */
#define TILE_ADD(c, x)     __asm__("vpaddd %1, %0, %0" : "+x"(c) : "x"(x))
#define TILE_FMA(c, x, b)  __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(x), "x"(b))
#define TILE_FNMA(c, x, b) __asm__("vfnmadd231ps %2, %1, %0" : "+x"(c) : "x"(x), "x"(b))

/* Row i's products with the TILE_GROUP vectors of codes w, which begin at quad j. */
TILE_INLINE __m256i group_dot(const __m256i *w, const __m256i *magnitude,
                              const int32_t *a, const int j, const int i, const int mr)
{
    __m256i pairs = _mm256_setzero_si256();

#pragma GCC unroll 4
    for (int g = 0; g < TILE_GROUP; g++) {
        __m256i x = _mm256_set1_epi32(a[(j + g) * mr + i]), products;

        if (TYPE(BITS) == 8)
            x = _mm256_sign_epi8(x, w[g]);
        products = _mm256_maddubs_epi16(TYPE(BITS) == 8 ? magnitude[g] : w[g], x);
        pairs = g == 0 ? products : _mm256_add_epi16(pairs, products);
    }
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

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
        const int first = 8 / TYPE(HALVES) * h;
        __m256i dot[TILE_MR_MAX];
        __m256 scale, min;

#pragma GCC unroll 8
        for (int i = 0; i < mr; i++)
            dot[i] = TYPE(MIN) || TYPE(BITS) == 8 ? _mm256_setzero_si256()
                                                  : _mm256_set1_epi32(word[i]);
#pragma GCC unroll 8
        for (int j = first; j < first + 8 / TYPE(HALVES); j += TILE_GROUP) {
            __m256i w[TILE_GROUP], magnitude[TILE_GROUP];

#pragma GCC unroll 4
            for (int g = 0; g < TILE_GROUP; g++) {
                w[g] = codes(s, j + g, side);
                if (TYPE(BITS) == 8)
                    w[g] = _mm256_xor_si256(w[g], _mm256_set1_epi8(-128));
                magnitude[g] = _mm256_abs_epi8(w[g]);
            }
#pragma GCC unroll 8
            for (int i = 0; i < mr; i++)
                TILE_ADD(dot[i], group_dot(w, magnitude, a, j, i, mr));
        }
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
