/* kernels/x86/gemm_quant_avx512.h - quantised weights times f32 activations, written once:
 * codes become f32 weights in a register, exactly, and are multiplied with all rows.
 *
 * One panel, up to 20 rows. An including file defines TILE_SUMS_MIN, see gemm_tile_avx512.h. */
#ifndef KERNELS_X86_GEMM_QUANT_AVX512_H
#define KERNELS_X86_GEMM_QUANT_AVX512_H

#include "kernels/x86/codes_avx512.h"

#define TILE_MR_MAX 20
#define TILE_ROWS                                                                        \
    {                                                                                    \
        20                                                                               \
    }
#define TILE_SET(X)      TILE_UP_20(X, 1)
#define TILE_A_WORDS     KERN_SUB
#define TILE_SPARSE_ROWS 0

/* The sets of sums that the rows of K take in turn; four at most. With 5 to 7 rows two are 1.04 to
 * 1.25 times as fast as one (Zen 5, in a cache). */
#define TILE_SETS(mr) ((mr)*4 <= TILE_SUMS_MIN ? 4 : (mr) < TILE_SUMS_MIN ? 2 : 1)

#define TILE_FMA_AT(c, a, b)                                                             \
    __asm__("vfmadd231ps %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(a)), "v"(b))

/* The 16 codes that a code of 4 bits stands for, less `less`. */
#define TILE_BOOK(less)                                                                  \
    _mm512_setr_ps(TILE_CODE(0, less), TILE_CODE(1, less), TILE_CODE(2, less),           \
                   TILE_CODE(3, less), TILE_CODE(4, less), TILE_CODE(5, less),           \
                   TILE_CODE(6, less), TILE_CODE(7, less), TILE_CODE(8, less),           \
                   TILE_CODE(9, less), TILE_CODE(10, less), TILE_CODE(11, less),         \
                   TILE_CODE(12, less), TILE_CODE(13, less), TILE_CODE(14, less),        \
                   TILE_CODE(15, less))
#define TILE_CODE(i, less) ((float)kern_books[TYPE(BOOK)][i] - (float)(less))

/* Row r of the four rows from 4 j on, as numbers from 0 up. `raw` has their codes: of 4 bits
 * as the panel has them, so that a look-up by the low four bits of a lane replaces masking
 * and conversion; else from codes(). */
TILE_INLINE __m512 code_row(__m512i raw, const int h, const int r)
{
    const __m512 value = TILE_BOOK(0);
    __m512i lane = raw;

    if (TYPE(BITS) == 4) {
        if (8 * r + 4 * h > 0)
            lane = _mm512_srli_epi32(raw, 8 * r + 4 * h);
        return _mm512_permutexvar_ps(lane, value);
    }
    if (r > 0)
        lane = _mm512_srli_epi32(raw, 8 * r);
    if (r < 3)
        lane = _mm512_and_si512(lane, _mm512_set1_epi32(255));
    return _mm512_cvtepi32_ps(lane);
}

/* Rows 16 h to 16 h + 15 of the sub-block at s of the block at b. */
TILE_INLINE void tile_half(__m512 sum[4][TILE_MR_MAX], const float *a, const char *b,
                           const char *s, const int h, const int mr)
{
    const __m512 scale = scales(b, s, h);
    /* an exact product, or exact with its sign changed */
    const __m512 least = TYPE(MIN)
                             ? _mm512_sub_ps(_mm512_setzero_ps(), mins(b, s, h))
                             : _mm512_mul_ps(scale, _mm512_set1_ps(-(float)TYPE(ZERO)));

#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        __m512i raw =
            TYPE(BITS) == 4 ? _mm512_loadu_si512(s + 64 * v) : codes(s, 4 * h + v);

#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            __m512 w = _mm512_fmadd_ps(code_row(raw, h, r), scale, least);

#pragma GCC unroll 20
            for (int i = 0; i < mr; i++)
                TILE_FMA_AT(sum[r % TILE_SETS(mr)][i], &a[(16 * h + 4 * v + r) * mr + i],
                            w);
        }
    }
}

/* Few rows, without a min: making weights of the codes takes longer than multiplying them. The
 * sums over 16 rows of K of activations times integers get their scale at the end. */
#define TILE_LATE(mr)  (!TYPE(MIN) && (mr) <= TILE_LATE_ROWS)
#define TILE_LATE_ROWS 4

/* Row r of the four rows from 4 j on, as integers: codes less their zero. `raw`: see code_row(),
 * but of bytes with a sign. */
TILE_INLINE __m512 integer_row(__m512i raw, const int h, const int r)
{
    const __m512 value = TILE_BOOK(TYPE(ZERO));

    if (TYPE(BITS) == 4)
        return _mm512_permutexvar_ps(
            8 * r + 4 * h > 0 ? _mm512_srli_epi32(raw, 8 * r + 4 * h) : raw, value);
    if (r < 3)
        raw = _mm512_slli_epi32(raw, 24 - 8 * r);
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(raw, 24));
}

TILE_INLINE void late_half(__m512 sum[4][TILE_MR_MAX], const float *a, const char *b,
                           const char *s, const int h, const int mr)
{
    const __m512 scale = scales(b, s, h);
    __m512 part[2][TILE_LATE_ROWS];

#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        __m512i raw = TYPE(BITS) == 4
                          ? _mm512_loadu_si512(s + 64 * v)
                          : _mm512_sub_epi8(codes(s, 4 * h + v),
                                            _mm512_set1_epi8((char)TYPE(ZERO)));

#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            __m512 w = integer_row(raw, h, r);

#pragma GCC unroll 4
            for (int i = 0; i < mr; i++) {
                const float *x = &a[(16 * h + 4 * v + r) * mr + i];

                if (v == 0 && r < 2)
                    part[r][i] = _mm512_mul_ps(_mm512_set1_ps(*x), w);
                else
                    TILE_FMA_AT(part[r % 2][i], x, w);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
        sum[h % TILE_SETS(mr)][i] = _mm512_fmadd_ps(_mm512_add_ps(part[0][i], part[1][i]),
                                                    scale, sum[h % TILE_SETS(mr)][i]);
}

TILE_INLINE void tile_sub(__m512 sum[4][TILE_MR_MAX], const float *a, const char *b,
                          const char *s, size_t panel, const int mr, const int np)
{
    (void)panel;
    (void)np;
    if (TILE_LATE(mr)) {
        late_half(sum, a, b, s, 0, mr);
        late_half(sum, a, b, s, 1, mr);
    } else {
        tile_half(sum, a, b, s, 0, mr);
        tile_half(sum, a, b, s, 1, mr);
    }
}

#include "kernels/x86/quant_run_avx512.h"

#endif
