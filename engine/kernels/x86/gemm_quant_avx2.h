/* kernels/x86/gemm_quant_avx2.h - quantised weights times f32 activations, written once:
 * codes become f32 weights in a register, exactly, and are multiplied with all rows.
 *
 * One panel, as two sides of 8 columns. An including file defines TILE_SUMS_MIN, see
 * gemm_tile_avx512.h. */
#ifndef KERNELS_X86_GEMM_QUANT_AVX2_H
#define KERNELS_X86_GEMM_QUANT_AVX2_H

#define TILE_MR_MAX 8
#define TILE_ROWS                                                                        \
    {                                                                                    \
        8                                                                                \
    }
#define TILE_SET(X)      TILE_UP_8(X, 1)
#define TILE_KEPT        2
#define TILE_A_WORDS     KERN_SUB
#define TILE_SPARSE_ROWS 0

/* The sets of sums that the rows of K take in turn; four at most. The registers hold two of five
 * rows: 1.1 to 1.2 times as fast with 3 to 5 rows as one (Zen 5, in a cache). */
#define TILE_SETS(mr)                                                                    \
    (TILE_SUMS_MIN == 0 ? 1 : (mr)*8 <= TILE_SUMS_MIN ? 4 : (mr) <= 5 ? 2 : 1)

#include "kernels/x86/quant_run_avx2.h"

#define TILE_FMA(c, x, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(x), "x"(b))

/* Row r of four rows, as numbers from 0 up. */
TILE_INLINE __m256 code_row(__m256i four, const int r)
{
    if (r > 0)
        four = _mm256_srli_epi32(four, 8 * r);
    if (r < 3)
        four = and_mask(four, mask_255);
    return _mm256_cvtepi32_ps(four);
}

/* Rows 16 h to 16 h + 15 of the sub-block at s of the block at b. */
TILE_INLINE void tile_half(__m256 sum[4][TILE_MR_MAX], const float *a, const char *b,
                           const char *s, const int h, const int side, const int mr)
{
    const __m256 scale = scales(b, s, h, side);
    /* an exact product, or exact with its sign changed */
    const __m256 least = TYPE(MIN)
                             ? _mm256_sub_ps(_mm256_setzero_ps(), mins(b, s, h, side))
                             : _mm256_mul_ps(scale, _mm256_set1_ps(-(float)TYPE(ZERO)));

    __asm__ volatile("" : "+r"(a)::"memory"); /* load again for the other side */
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        __m256i four = codes(s, 4 * h + v, side, false);

#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            __m256 w = _mm256_fmadd_ps(code_row(four, r), scale, least);

#pragma GCC unroll 8
            for (int i = 0; i < mr; i++) {
                __m256 x = _mm256_broadcast_ss(&a[(16 * h + 4 * v + r) * mr + i]);

                TILE_FMA(sum[r % TILE_SETS(mr)][i], x, w);
            }
        }
    }
}

/* One row, without a min: making weights of the codes takes longer than multiplying them. The
 * sums over 16 rows of K of activations times integers get their scale at the end. Not where
 * each number is to be one chain. (Two rows need more than sixteen registers.) */
#define TILE_LATE(mr) (TILE_SUMS_MIN > 0 && !TYPE(MIN) && (mr) == 1)

TILE_INLINE void late_half(__m256 sum[4][TILE_MR_MAX], const float *a, const char *b,
                           const char *s, const int h, const int side, const int mr)
{
    const __m256 scale = scales(b, s, h, side);
    __m256 part[2][TILE_KEPT];

    __asm__ volatile("" : "+r"(a)::"memory"); /* load again for the other side */
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        __m256i four = _mm256_sub_epi8(codes(s, 4 * h + v, side, false),
                                       _mm256_set1_epi8((char)TYPE(ZERO)));

#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            __m256i lane = r < 3 ? _mm256_slli_epi32(four, 24 - 8 * r) : four;
            __m256 w = _mm256_cvtepi32_ps(_mm256_srai_epi32(lane, 24));

#pragma GCC unroll 2
            for (int i = 0; i < mr; i++) {
                __m256 x = _mm256_broadcast_ss(&a[(16 * h + 4 * v + r) * mr + i]);

                if (v == 0 && r < 2)
                    part[r][i] = _mm256_mul_ps(x, w);
                else
                    TILE_FMA(part[r % 2][i], x, w);
            }
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < mr; i++)
        sum[h % TILE_SETS(mr)][i] = _mm256_fmadd_ps(_mm256_add_ps(part[0][i], part[1][i]),
                                                    scale, sum[h % TILE_SETS(mr)][i]);
}

/* One side of 32 rows of K. */
TILE_INLINE void tile_side(__m256 sum[4][TILE_MR_MAX], float *c, const void *a,
                           const char *b, const char *s, const int side, const int mr)
{
    if (mr > TILE_KEPT)
        sums_begin(sum, c + 8 * side, KERN_PANEL, mr);
    if (TILE_LATE(mr)) {
        late_half(sum, a, b, s, 0, side, mr);
        late_half(sum, a, b, s, 1, side, mr);
    } else {
        tile_half(sum, a, b, s, 0, side, mr);
        tile_half(sum, a, b, s, 1, side, mr);
    }
    if (mr > TILE_KEPT)
        sums_end(sum, c + 8 * side, KERN_PANEL, mr);
}

TILE_INLINE void tile_sub(__m256 sum[2][4][TILE_MR_MAX], float *c, const void *a,
                          const char *b, const char *s, const int mr)
{
    tile_side(sum[0], c, a, b, s, 0, mr);
    tile_side(sum[1], c, a, b, s, 1, mr);
}

TILE_DISPATCH

#endif
