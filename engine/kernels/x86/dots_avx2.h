/* kernels/x86/dots_avx2.h - sums of products by VPMADDUBSW. It multiplies unsigned with signed
 * bytes and adds pairs of products to 16-bit sums that saturate, so TILE_GROUP of its results
 * are added before they are widened: as many as cannot exceed 16 bits, whatever the codes and
 * activations are, which with codes of 4 bits is all 32 rows of K. With codes of 8 bits even one
 * could, and so with those that the book of IQ4_NL has. There the magnitudes of the signed
 * weights, at most 128, are multiplied, and each activation takes the sign of its weight. */
#ifndef KERNELS_X86_DOTS_AVX2_H
#define KERNELS_X86_DOTS_AVX2_H

#include "kernels/x86/rows_a8_avx2.h"

#define TILE_GROUP                                                                       \
    (TYPE(WIDTH) == 8   ? 1                                                              \
     : TYPE(WIDTH) == 6 ? 2                                                              \
     : TYPE(WIDTH) == 5 ? 4                                                              \
                        : 8 / TYPE(HALVES))
#define TILE_MOST (TYPE(WIDTH) == 8 ? 128 : (1 << TYPE(WIDTH)) - 1)
_Static_assert(TILE_GROUP * 2 * TILE_MOST * 127 <= INT16_MAX, "16-bit sums overflow");

/* Both sides at once share the broadcasts of activations. That needs a register for each sum of
 * 16 bits, and one more for each where the sums of 32 bits are not made of these alone. */
#define TILE_SIDES(mr, how) ((mr) <= 2 || ((how) != DOTS_MORE && TILE_GROUP == 8) ? 2 : 1)

static const uint32_t ones[8] MASK(0x00010001);

/* In place, for the reason given in gemm_tile_avx512.h. */
#define TILE_ADD(c, x) __asm__("vpaddd %1, %0, %0" : "+x"(c) : "x"(x))

/* The products of a quad of codes and activations, added in pairs. */
TILE_INLINE __m256i pair_products(const __m256i w, const __m256i x)
{
    if (TYPE(WIDTH) == 8)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

/* Add them to those of the quads before, of which there are none if `first`. */
TILE_INLINE __m256i add_pairs(__m256i pairs, const __m256i w, const __m256i x,
                              const bool first)
{
    __m256i products;

    if (first)
        return pair_products(w, x);
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
            : "+x"(pairs), "=&x"(products)
            : "x"(w), "x"(x));
    return pairs;
}

/* Sums of 32 bits of the sums of 16 bits. */
TILE_INLINE __m256i widen(__m256i pairs, const int mr)
{
    if (TILE_KEEP(mr))
        return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __asm__("vpmaddwd %1, %0, %0" : "+x"(pairs) : "m"(*(const __m256i *)ones));
    return pairs;
}

/* Sums of 32 bits begin with sums of 16 bits, or these are added. */
TILE_INLINE void add_widened(__m256i *dot, __m256i pairs, const int mr, const bool begin)
{
    const __m256i sums = widen(pairs, mr);

    if (begin)
        *dot = sums;
    else
        TILE_ADD(*dot, sums);
}

/* Four codes of each column in the form that add_pairs() takes. */
TILE_INLINE __m256i weights(const char *s, const int j, const int side, const int mr,
                            const int how)
{
    const __m256i w = codes_of(s, j, side, mr, how);

    return TYPE(WIDTH) == 8 ? _mm256_xor_si256(w, _mm256_set1_epi8(-128)) : w;
}

/* dots() of both sides: quad after quad, and each with all rows. */
TILE_INLINE void dots_both(__m256i dot[2][TILE_MR_MAX], const int32_t *a, const char *s,
                           const int h, const int mr, const int how)
{
    const bool starts = TYPE(WIDTH) < 8 && !TYPE(MIN);
    __m256i pairs[2][TILE_MR_MAX];

#pragma GCC unroll 8
    for (int q = 0; q < 8 / TYPE(HALVES); q++) {
        const bool begin = how != DOTS_MORE && q < TILE_GROUP;
        const bool first = q % TILE_GROUP == 0, last = q % TILE_GROUP == TILE_GROUP - 1;
        const int j = quad(h, q);
        const __m256i w[2] = {weights(s, j, 0, mr, how), weights(s, j, 1, mr, how)};

#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            const __m256i four = word_at(&a[j * mr + i]);

#pragma GCC unroll 2
            for (int x = 0; x < 2; x++) {
                if (TILE_GROUP == 1)
                    add_widened(&dot[x][i], add_pairs(four, w[x], four, true), mr, begin);
                else
                    pairs[x][i] =
                        add_pairs(first ? four : pairs[x][i], w[x], four, first);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < mr && TILE_GROUP > 1 && last; i++) {
#pragma GCC unroll 2
            for (int x = 0; x < 2; x++) {
                add_widened(&dot[x][i], pairs[x][i], mr, begin);
                if (begin && starts)
                    TILE_ADD(dot[x][i], dot_start(a, h, i, mr));
            }
        }
    }
}

/* dots() of one side: row after row, and each with a few quads, whose sum of 16 bits needs no
 * register when the next row begins. */
TILE_INLINE void dots_one(__m256i dot[TILE_MR_MAX], const int32_t *a, const char *s,
                          const int h, const int side, const int mr, const int how)
{
    const int n = 8 / TYPE(HALVES), group = TILE_GROUP < 4 ? TILE_GROUP : 4;

#pragma GCC unroll 8
    for (int i = 0; i < mr && how != DOTS_MORE; i++)
        dot[i] = TYPE(WIDTH) == 8 ? _mm256_setzero_si256() : dot_start(a, h, i, mr);
#pragma GCC unroll 8
    for (int j = n * h; j < n * (h + 1); j += group) {
        __m256i w[4];

#pragma GCC unroll 4
        for (int g = 0; g < group; g++)
            w[g] = weights(s, j + g, side, mr, how);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            __m256i pairs = _mm256_setzero_si256();

#pragma GCC unroll 4
            for (int g = 0; g < group; g++) {
                const __m256i x =
                    pair_products(w[g], _mm256_set1_epi32(a[(j + g) * mr + i]));

                pairs = g == 0 ? x : _mm256_add_epi16(pairs, x);
            }
            TILE_ADD(dot[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
}

/* The sums of each row and of TILE_SIDES sides from `side` on, with the codes of half h (of
 * TYPE(HALVES)) of the sub-block at s. */
TILE_INLINE void dots(__m256i dot[2][TILE_MR_MAX], const int32_t *a, const char *s,
                      const int h, const int side, const int mr, const int how)
{
    if (TILE_SIDES(mr, how) == 2)
        dots_both(dot, a, s, h, mr, how);
    else
        dots_one(dot[0], a, s, h, side, mr, how);
}

#endif
