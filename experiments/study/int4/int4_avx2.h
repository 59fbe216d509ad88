/* experiments/study/int4/int4_avx2.h - int4.h by VPMADDUBSW, as kernels/x86/dots_avx2.h.
 *
 * The widest sums of 16 bits are of four pairs of products: unsigned 4 * 2 * 15 * 127, signed
 * 4 * 2 * 255 * 8; both fit.
 * An including file defines INT4_SIGNED and INT4_FORM. */
#ifndef STUDY_INT4_AVX2_H
#define STUDY_INT4_AVX2_H

#include "experiments/study/int4/int4.h"

#define QUANT Q4_0
#include "kernels/x86/a_group_avx2.h"
#include "kernels/x86/rows_a8_avx2.h"

_Static_assert(4 * 2 * 255 * 8 <= INT16_MAX, "16-bit sums overflow");
static const uint32_t mask_8[8] MASK(0x08080808);
static const uint32_t mask_128[8] MASK(0x80808080);

#define TILE_ADD(c, x) __asm__("vpaddd %1, %0, %0" : "+x"(c) : "x"(x))

/* The codes of two vectors from 32 bytes of straight order. */
TILE_INLINE void unpack(__m256i w[2], const char *at)
{
    __m256i x, low, high;

    /* Load again, and not before what comes before is done: registers are scarce. */
    __asm__ volatile("" : "+r"(at)::"memory");
    x = bytes_at(at);
    low = and_mask(x, mask_15);
    high = and_mask(_mm256_srli_epi16(x, 4), mask_15);
    w[0] = _mm256_unpacklo_epi8(low, high);
    w[1] = _mm256_unpackhi_epi8(low, high);
    if (INT4_SIGNED) {
        w[0] = _mm256_sub_epi8(w[0], bytes_at((const char *)mask_8));
        w[1] = _mm256_sub_epi8(w[1], bytes_at((const char *)mask_8));
    }
}

/* The sum of products of four vectors of weights with row i's activations, quads j to j + 3. */
TILE_INLINE __m256i four_dots(const __m256i w[4], const int32_t *a, const int j,
                              const int i, const int mr)
{
    __m256i pairs = _mm256_setzero_si256();

#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m256i x = _mm256_set1_epi32(a[(j + g) * mr + i]), products;

        if (INT4_SIGNED)
            x = _mm256_xor_si256(x, bytes_at((const char *)mask_128));
        products =
            INT4_SIGNED ? _mm256_maddubs_epi16(x, w[g]) : _mm256_maddubs_epi16(w[g], x);
        pairs = g == 0 ? products : _mm256_add_epi16(pairs, products);
    }
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* 128 times the sum of the weights. */
TILE_INLINE __m256i excess(const __m256i w[4])
{
    const __m256i x = bytes_at((const char *)mask_128);
    __m256i pairs = _mm256_maddubs_epi16(x, w[0]);

#pragma GCC unroll 4
    for (int g = 1; g < 4; g++)
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(x, w[g]));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* The definitions that gemm_a8_avx2.h needs: one side at a time. */
#define TILE_SIDES(mr, how) 1
TILE_INLINE void dots(__m256i dot[2][TILE_MR_MAX], const int32_t *a, const char *s,
                      const int h, const int side, const int mr, const int how)
{
    (void)how;
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        dot[0][i] = INT4_SIGNED ? _mm256_setzero_si256() : dot_start(a, h, i, mr);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m256i w[4];

        unpack(w, s + 128 * half + 32 * side);
        unpack(w + 2, s + 128 * half + 64 + 32 * side);
        if (INT4_SIGNED) {
            __m256i more = excess(w);

#pragma GCC unroll 8
            for (int i = 0; i < mr; i++)
                dot[0][i] = _mm256_sub_epi32(dot[0][i], more);
        }
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++)
            TILE_ADD(dot[0][i], four_dots(w, a, 4 * half, i, mr));
    }
}

#include "kernels/x86/gemm_a8_avx2.h"

INT4_VARIANT(avx2, .isa = CPU_MASK(AVX2), .fn.gemm = tile_dispatch, .rows = TILE_ROWS,
             .vec_cols = 8, .a_group = a_group_avx2);

#endif
