/* kernels/x86/dots_avx2.h - sums of products by VPMADDUBSW. It multiplies unsigned with signed
 * bytes and adds pairs of products to 16-bit sums that saturate, so TILE_GROUP of its results
 * are added before they are widened: as many as cannot exceed 16 bits, whatever the codes and
 * activations are. With codes of 8 bits even one could. There the magnitudes of the signed
 * weights, at most 128, are multiplied, and each activation takes the sign of its weight. */
#ifndef KERNELS_X86_DOTS_AVX2_H
#define KERNELS_X86_DOTS_AVX2_H

#include "kernels/x86/rows_a8_avx2.h"

#define TILE_GROUP (TYPE(BITS) <= 5 ? 4 : TYPE(BITS) == 6 ? 2 : 1)
#define TILE_MOST  (TYPE(BITS) == 8 ? 128 : (1 << TYPE(BITS)) - 1)
_Static_assert(TILE_GROUP * 2 * TILE_MOST * 127 <= INT16_MAX, "16-bit sums overflow");

/* In place, for the reason given in gemm_tile_avx512.h. */
#define TILE_ADD(c, x) __asm__("vpaddd %1, %0, %0" : "+x"(c) : "x"(x))

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

TILE_INLINE void dots_start(__m256i dot[TILE_MR_MAX], const int32_t *a, const int h,
                            const int mr)
{
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        dot[i] = TYPE(BITS) == 8 ? _mm256_setzero_si256() : dot_start(a, h, i, mr);
}

/* Add the products with the codes of half h (of TYPE(HALVES)) of the sub-block at s to the sums
 * of each row. */
TILE_INLINE void dots(__m256i dot[TILE_MR_MAX], const int32_t *a, const char *s,
                      const int h, const int side, const int mr)
{
    const int n = 8 / TYPE(HALVES);

#pragma GCC unroll 8
    for (int j = n * h; j < n * (h + 1); j += TILE_GROUP) {
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
}

#endif
