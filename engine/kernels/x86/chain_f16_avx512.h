/* kernels/x86/chain_f16_avx512.h - bf16 weights multiplied in half precision, summed in
 * short chains. AVX512-FP16 multiplies twice as many halves as floats a cycle.
 *
 * CHAIN_K products are summed in f16, then widened and added to f32 sums in the
 * first-level cache. Overflow is impossible: a row of A is scaled by a power of two to
 * below 256, a column of a slice of W to below 1 (2 at the type's very end), so that a
 * chain stays below 32 x 256 x 2 < 65504. Scaling is exact; rounding an activation to f16
 * keeps 11 bits where bf16 keeps 8. A weight loses bits only below 2^-14 of its column's
 * largest.
 *
 * An including file defines CHAIN_FMA(c, x, b): c += x * b, 32 halves in each __m512i. */
#ifndef KERNELS_CHAIN_F16_AVX512_H
#define KERNELS_CHAIN_F16_AVX512_H

#include <immintrin.h>

#include "kernels/tile_set.h"
#include "kernels/x86/vec_avx512.h"

#define CHAIN_K      32
#define CHAIN_A_EXP  8   /* rows of A are below 2^8 */
#define F32_EXP_BIAS 127 /* of a float's exponent field, which bf16 shares */

/* 9 rows of 5 and 6 panels would fit in 32 registers too, but gcc 12 then spills. */
#define TILE_MR_MAX 30
#define TILE_ROWS                                                                        \
    {                                                                                    \
        30, 30, 14, 14, 8, 8, 6, 6                                                       \
    }
#define TILE_SET(X)                                                                      \
    TILE_UP_30(X, 1)                                                                     \
    TILE_UP_30(X, 2)                                                                     \
    TILE_UP_14(X, 3)                                                                     \
    TILE_UP_14(X, 4) TILE_UP_8(X, 5) TILE_UP_8(X, 6) TILE_UP_6(X, 7) TILE_UP_6(X, 8)

#define HALF(h, i) _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, i))

/* One row of K: a vector of B is 16 columns of one panel and 16 of the next. */
TILE_INLINE void chain_step(__m512i h[TILE_MR_MAX][KERN_NP_MAX / 2], const uint32_t *a,
                            const char *b, const int mr, const int nv)
{
    __m512i col[KERN_NP_MAX / 2];

#pragma GCC unroll 4
    for (int v = 0; v < nv; v++)
        col[v] = _mm512_load_si512((const void *)(b + 64 * v));
#pragma GCC unroll 30
    for (int i = 0; i < mr; i++) {
        __m512i x = _mm512_set1_epi32((int)a[i]);

#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            CHAIN_FMA(h[i][v], x, col[v]);
    }
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const int nv = (np + 1) / 2;
    float sum[TILE_MR_MAX][KERN_NP_MAX * KERN_PANEL] __attribute__((aligned(64)));
    const uint32_t *a = t->a;
    const char *b = t->b;

    int64_t done = 0;

    do { /* k > 0 */
        int64_t k = t->k - done < CHAIN_K ? t->k - done : CHAIN_K;
        __m512i h[TILE_MR_MAX][KERN_NP_MAX / 2];

#pragma GCC unroll 30
        for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                h[i][v] = _mm512_setzero_si512();
        }
        for (; k >= 2; k -= 2, a += 2 * mr, b += 2 * 64 * nv) {
            chain_step(h, a, b, mr, nv);
            chain_step(h, a + mr, b + 64 * nv, mr, nv);
        }
        if (k > 0) {
            chain_step(h, a, b, mr, nv);
            a += mr;
            b += 64 * nv;
        }
#pragma GCC unroll 30
        for (int i = 0; i < mr; i++) {
#pragma GCC unroll 8
            for (int p = 0; p < np; p++) {
                float *s = &sum[i][16 * p];
                __m512 x = p % 2 == 0 ? HALF(h[i][p / 2], 0) : HALF(h[i][p / 2], 1);

                _mm512_store_ps(s, done ? _mm512_add_ps(_mm512_load_ps(s), x) : x);
            }
        }
        done += CHAIN_K;
    } while (done < t->k);
    for (int i = 0; i < mr; i++) {

        for (int p = 0; p < np; p++) {
            float *c = t->c + i * t->ldc + 16 * p;
            __m512 factor = _mm512_mul_ps(_mm512_set1_ps(t->row_factor[i]),
                                          _mm512_loadu_ps(t->col_factor + 16 * p));
            __m512 x = _mm512_mul_ps(_mm512_load_ps(&sum[i][16 * p]), factor);

            _mm512_storeu_ps(c, t->accumulate ? _mm512_add_ps(_mm512_loadu_ps(c), x) : x);
        }
    }
}

TILE_DISPATCH

/* ---- weights ---- */

/* Powers of two that bring numbers below 2^(field - 126) below 2^to_exp, from the
 * exponent fields of the largest. Clamped to powers whose inverse is a normal number. */
static __m512 power_of_two(__m512i field, int to_exp)
{
    __m512i x = _mm512_sub_epi32(_mm512_set1_epi32(2 * F32_EXP_BIAS - 1 + to_exp), field);

    x = _mm512_max_epi32(_mm512_set1_epi32(1), x);
    x = _mm512_min_epi32(_mm512_set1_epi32(2 * F32_EXP_BIAS - 1), x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 23));
}

/* The exact inverse of a power of two. */
static __m512 inverse(__m512 power)
{
    return _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32(2 * F32_EXP_BIAS << 23),
                                                _mm512_castps_si512(power)));
}

/* Pair j (rows 2j and 2j + 1) of a panel whose units are b_unit_bytes apart. */
static __m512i weight_pair(const struct kern_gemm_tile *t, const char *panel, int64_t j)
{
    int64_t unit = 2 * j / t->k_unit, row = 2 * j - unit * t->k_unit;

    return _mm512_loadu_si512(panel + (size_t)unit * t->b_unit_bytes + (size_t)row * 32);
}

static __m512 column_scales(const struct kern_gemm_tile *t, const char *panel)
{
    __m512i most = _mm512_setzero_si512(), low;

    for (int64_t j = 0; j < t->k / 2; j++)
        most = _mm512_max_epu16(most, _mm512_and_si512(weight_pair(t, panel, j),
                                                       _mm512_set1_epi32(0x7fff7fff)));
    low = _mm512_and_si512(most, _mm512_set1_epi32(0xffff));
    most = _mm512_max_epi32(_mm512_srli_epi32(most, 16), low);
    return power_of_two(_mm512_srli_epi32(most, 7), 0);
}

/* Row k of panel p, times the columns' scales, as halves. */
static void put_row(char *to, int64_t k, int p, int np, __m512 x, __m512 scale)
{
    int nv = (np + 1) / 2;
    __m256i half = _mm512_cvtps_ph(_mm512_mul_ps(x, scale), _MM_FROUND_TO_NEAREST_INT);

    to += (k * nv + p / 2) * 64 + p % 2 * 32;
    _mm256_store_si256((__m256i *)to, half);
    if (p == np - 1 && p % 2 == 0)
        _mm256_store_si256((__m256i *)(to + 32), _mm256_setzero_si256());
}

static void chain_convert(const struct kern_gemm_tile *t, void *to, float *col_factor)
{
    for (int p = 0; p < t->np; p++) {
        const char *panel = (const char *)t->b + (size_t)p * t->b_panel_bytes;
        __m512 scale = column_scales(t, panel);

        _mm512_storeu_ps(col_factor + 16 * p, inverse(scale));
        for (int64_t j = 0; j < t->k / 2; j++) {
            __m512i pair = weight_pair(t, panel, j);
            __m512i odd = _mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000));

            put_row(to, 2 * j, p, t->np, _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)),
                    scale);
            put_row(to, 2 * j + 1, p, t->np, _mm512_castsi512_ps(odd), scale);
        }
    }
}

/* ---- activations ---- */

static float chain_a_scale(const float *x, int64_t n)
{
    __m512i most = _mm512_setzero_si512();
    int top;

    for (int64_t i = 0; i < n; i += 16) {
        __m512i v = _mm512_maskz_loadu_epi32(vec_mask(n - i), x + i);

        most = _mm512_max_epi32(most, _mm512_and_si512(v, _mm512_set1_epi32(0x7fffffff)));
    }
    top = _mm512_reduce_max_epi32(most);
    return _mm512_cvtss_f32(power_of_two(_mm512_set1_epi32(top >> 23), CHAIN_A_EXP));
}

static void chain_a_words(uint32_t *out, const float *x, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), _mm512_set1_ps(scale));
        __m512i h = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));

        _mm512_mask_storeu_epi32(out + i, m,
                                 _mm512_or_si512(h, _mm512_slli_epi32(h, 16)));
    }
}

#endif
