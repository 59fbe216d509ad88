/* kernels/x86/attn_row_avx512.h - what both ways of attention in AVX-512 need (attn_avx512.h):
 * queries, the softmax of a row, and its end.
 *
 * Scores carry log2(e), so that softmax needs only 2^x. The running maximum is FlashAttention's.
 */
#ifndef KERNELS_ATTN_ROW_AVX512_H
#define KERNELS_ATTN_ROW_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/attn_pieces.h"
#include "kernels/kern.h"

#define ATTN_INLINE static inline __attribute__((always_inline))
/* Keys in a tile. Of many rows: scores and values stay in the first-level cache. Of few rows, which
 * read keys once: long runs, since reading goes back and forth between keys and values. On Zen 4,
 * from memory, tiles of 512 take 0.86 to 0.89 of the time of 64 for 1 to 8 rows. */
#define ATTN_KEYS         64
#define ATTN_KEYS_SMALL_M 512
#define ATTN_SMALL_M_ROWS 8 /* up to here transposing the keys is not earned back */
#define ATTN_LOG2E        1.44269504088896340736f
#define ATTN_LN2          0.69314718055994530942f

/* Lanes below n. */
ATTN_INLINE __mmask16 attn_mask(int64_t n)
{
    return n >= 16 ? (__mmask16)0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

/* 2^x for x <= 0 to about 1 ulp: Taylor terms on abs(f) <= 1/2; 0 below the denormals,
 * NaN for NaN. */
ATTN_INLINE __m512 attn_exp2(__m512 x)
{
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(1.5252733804e-5f);
    __mmask16 ok = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-150.0f), _CMP_NLT_UQ);

    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.5403530393e-4f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.3333558146e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6181291076e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5504108665e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022650696e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718056e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(ok, p, n);
}

ATTN_INLINE __m512 attn_add(__m512 a, __m512 b)
{
    return _mm512_add_ps(a, b);
}

/* Lane i of the result is the lanes of v[i] joined by op, their sum by attn_add(); v is used
 * up. */
ATTN_INLINE __m512 attn_fold16(__m512 v[16], __m512 (*op)(__m512, __m512))
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        v[i] = op(_mm512_shuffle_f32x4(v[i], v[i + 8], 0x44),
                  _mm512_shuffle_f32x4(v[i], v[i + 8], 0xee));
        /* quarters of v[i] now belong to i, i, i+8, i+8 */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        v[i] = op(_mm512_shuffle_f32x4(v[i], v[i + 4], 0x88),
                  _mm512_shuffle_f32x4(v[i], v[i + 4], 0xdd));
        /* to i, i+8, i+4, i+12 */
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        v[i] = op(_mm512_unpacklo_ps(v[i], v[i + 2]), _mm512_unpackhi_ps(v[i], v[i + 2]));
    v[0] = op(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    return _mm512_shuffle_f32x4(v[0], v[0], 0xd8); /* quarters 0, 2, 1, 3 */
}

struct attn_row {
    float max, sum; /* of the scores seen so far, in powers of two */
};

/* Scores s[0, n) of a row become weights, those of the sixteens up to `to` that follow 0; the
 * state takes them in. Returns the factor by which what was accumulated before must shrink. */
ATTN_INLINE float attn_softmax(struct attn_row *row, float *s, int64_t n, int64_t to)
{
    __m512 top = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps(), below;
    float max, shrink;

    for (int64_t i = 0; i < to; i += 16)
        top = _mm512_mask_max_ps(top, attn_mask(n - i), top, _mm512_load_ps(s + i));
    max = _mm512_reduce_max_ps(top);
    max = max > row->max ? max : row->max;
    if (max == -INFINITY)
        max = 0; /* nothing but -infinity so far: weights 0, not NaN */
    below = _mm512_set1_ps(-max);
    for (int64_t i = 0; i < to; i += 16) {
        __m512 p = attn_exp2(_mm512_add_ps(_mm512_load_ps(s + i), below));

        p = _mm512_maskz_mov_ps(attn_mask(n - i), p);
        _mm512_store_ps(s + i, p);
        sum = _mm512_add_ps(sum, p);
    }
    shrink = row->max == max ? 1.0f : exp2f(row->max - max);
    row->sum = row->sum * shrink + _mm512_reduce_add_ps(sum);
    row->max = max;
    return shrink;
}

/* Thirty-two floats through `order`, attn_split() or attn_join(). */
ATTN_INLINE void attn_reorder(float *x, void (*order)(__m512 x[2]))
{
    __m512 both[2] = {_mm512_load_ps(x), _mm512_load_ps(x + 16)};

    order(both);
    _mm512_store_ps(x, both[0]);
    _mm512_store_ps(x + 16, both[1]);
}

/* Row `row` of the group's queries: times 1 / sum to its place, with its log-sum-exp. */
ATTN_INLINE void attn_finish(const struct kern_attn_args *a, int row, const float *acc,
                             const struct attn_row *state)
{
    float *out = a->out + row / a->g * a->out_stride + row % a->g * (int64_t)a->head_dim;
    bool any = !(state->sum <= 0); /* a NaN score is not hidden */
    __m512 inv = _mm512_set1_ps(any ? 1.0f / state->sum : 0.0f);

    for (int d = 0; d < a->head_dim; d += 16)
        _mm512_mask_storeu_ps(out + d, attn_mask(a->head_dim - d),
                              _mm512_mul_ps(inv, _mm512_load_ps(acc + d)));
    if (a->lse)
        a->lse[row] = any ? (state->max + log2f(state->sum)) * ATTN_LN2 : -INFINITY;
}

/* Keys of the tile [t, t + keys) that row `row` may see. */
ATTN_INLINE int64_t attn_visible(const struct kern_attn_args *a, int row, int64_t t,
                                 int64_t keys)
{
    int64_t end = a->pos0 + row / a->g + 1;
    int64_t n = (end < a->kv_hi ? end : a->kv_hi) - t;

    return n < 0 ? 0 : n > keys ? keys : n;
}

/* The pieces of the tile of `keys` keys at t. */
ATTN_INLINE void attn_tile_pieces(struct kern_attn_piece *out,
                                  const struct kern_attn_args *a, int64_t t, int64_t keys)
{
    int64_t n = a->kv_hi - t;

    kern_attn_pieces(out, a, t, n < keys ? n : keys,
                     (size_t)ATTN_STRIDE(a->head_dim) * sizeof(ATTN_ELEM));
}

/* Scaled queries, one row after another, padded with zeros to `rows` rows of ld floats. pairs:
 * each thirty-two of a row in the order of attn_load_pair(). */
ATTN_INLINE void attn_load_q(const struct kern_attn_args *a, float *q, int rows, int ld,
                             const bool pairs)
{
    __m512 scale = _mm512_set1_ps(a->scale * ATTN_LOG2E);

    for (int r = 0; r < rows; r++) {
        bool real = r < a->n_tok * a->g;
        const float *x =
            real ? a->q + r / a->g * a->q_stride + r % a->g * (int64_t)a->head_dim : a->q;

        for (int d = 0; d < ld; d += 16) {
            __mmask16 m = real ? attn_mask(a->head_dim - d) : 0;

            _mm512_store_ps(q + (int64_t)r * ld + d,
                            _mm512_mul_ps(scale, _mm512_maskz_loadu_ps(m, x + d)));
        }
        for (int d = 0; pairs && d < ld; d += 32)
            attn_reorder(q + (int64_t)r * ld + d, attn_split);
    }
}

#endif
