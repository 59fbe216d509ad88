/* kernels/x86/attn_avx2.h - flash-style attention in AVX2, for every type of keys and values.
 *
 * An including file defines ATTN_LOAD(p): eight elements as f32, not scaled; and
 * ATTN_LOAD_N(p, n): the first n < 8 of them, the rest zero and nothing behind the vector read.
 * Scores and weights take the factors of their keys and values.
 * Each row takes in a tile of keys and values after the other: it keeps a running maximum and
 * sum, and `out` itself holds what is accumulated so far. Parts of a tile serve every row before
 * the next part is read. */
#ifndef KERNELS_X86_ATTN_AVX2_H
#define KERNELS_X86_ATTN_AVX2_H

#include <math.h>
#include <stdbool.h>

#include "kernels/attn_pieces.h"
#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

/* Compiled by itself: within the loops around it, its own loops got fewer registers. */
#define ATTN_APART __attribute__((noinline))
/* Keys whose scores a row takes in at once; their keys and values are read in long runs. One
 * size for all rows, so that a row's bits do not depend on the batch. */
#define ATTN_KEYS 128
/* Keys that serve every row before others are read. Those of f32 stay in the first-level cache,
 * 32 KiB for head_dim 128, else prefill takes 1.2 times as long on Zen 4. Of narrower types
 * widening takes longer than the second-level cache. */
#define ATTN_PART (sizeof(ATTN_ELEM) < sizeof(float) ? ATTN_KEYS : 32)
/* Bytes from what is read to what is prefetched. */
#define ATTN_AHEAD     8192
#define ATTN_BYTES(hd) ((size_t)ATTN_STRIDE(hd) * sizeof(ATTN_ELEM)) /* of a key */

struct attn_row {
    float max, sum;
};

/* Elements [d, d + 8) of a vector of hd, zero beyond it. */
static inline __m256 attn_get(const ATTN_ELEM *p, int d, int hd)
{
    return hd - d >= 8 ? ATTN_LOAD(p + d) : ATTN_LOAD_N(p + d, hd - d);
}

static inline __m256 attn_get_f32(const float *p, int d, int hd)
{
    return hd - d >= 8 ? _mm256_loadu_ps(p + d)
                       : _mm256_maskload_ps(p + d, vec_mask(hd - d));
}

static inline void attn_put_f32(float *p, int d, int hd, __m256 v)
{
    if (hd - d >= 8)
        _mm256_storeu_ps(p + d, v);
    else
        _mm256_maskstore_ps(p + d, vec_mask(hd - d), v);
}

/* Scores of n keys, of which k is the first, with the highest address, for `rows` rows of a token,
 * whose queries are one after another. Four keys share each load of q, and the rows those of the
 * keys. */
static inline __attribute__((always_inline)) void
attn_dots_of(float *s, const float *q, const ATTN_ELEM *k, int hd, int n, float scale,
             const struct kern_attn_ahead *ahead, const int rows)
{
    const int64_t stride = ATTN_STRIDE(hd);

    for (int t = (n - 1) / 4 * 4; t >= 0; t -= 4) {
        __m256 sum[2][4];
        const ATTN_ELEM *key[4]; /* a missing key repeats the last one */

        /* Four keys at a time are not read in the order of memory, but are asked for so. */
        if (ahead->bytes)
            kern_attn_prefetch(ahead, k - ((t + 4 < n ? t + 4 : n) - 1) * stride,
                               4 * ATTN_BYTES(hd));
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            key[j] = k - (t + j < n ? t + j : n - 1) * stride;
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                sum[r][j] = _mm256_setzero_ps();
        }
        for (int d = 0; d < hd; d += 8) {
            __m256 x[2];

#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                x[r] = attn_get_f32(q + (int64_t)r * hd, d, hd);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                __m256 y = attn_get(key[j], d, hd);

#pragma GCC unroll 2
                for (int r = 0; r < rows; r++)
                    sum[r][j] = _mm256_fmadd_ps(x[r], y, sum[r][j]);
            }
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                if (t + j < n)
                    s[r * ATTN_KEYS + t + j] =
                        scale * vec_sum(sum[r][j]) * ATTN_SCALE(key[j], hd);
        }
    }
}

ATTN_APART static void attn_dots(float *s, const float *q, const ATTN_ELEM *k, int hd,
                                 int n, float scale, const struct kern_attn_ahead *ahead)
{
    attn_dots_of(s, q, k, hd, n, scale, ahead, 1);
}

ATTN_APART static void attn_dots_two(float *s, const float *q, const ATTN_ELEM *k, int hd,
                                     int n, float scale,
                                     const struct kern_attn_ahead *ahead)
{
    attn_dots_of(s, q, k, hd, n, scale, ahead, 2);
}

/* Scores s[0, n) become weights under the row's new maximum, up to 7 that follow 0.
 * Returns the factor by which what was accumulated before must shrink. */
ATTN_APART static float attn_softmax(struct attn_row *row, float *s, int n)
{
    __m256 max_v = _mm256_set1_ps(row->max), sum = _mm256_setzero_ps();
    float shrink, max;

    for (int t = n; t < (n + 7) / 8 * 8; t++)
        s[t] = -INFINITY;
    for (int t = 0; t < n; t += 8)
        max_v = _mm256_max_ps(max_v, _mm256_load_ps(s + t));
    max = vec_max(max_v);
    if (max == -INFINITY)
        max = 0; /* nothing but -infinity so far: weights 0, not NaN */
    max_v = _mm256_set1_ps(max);
    for (int t = 0; t < n; t += 8) {
        __m256 p = vec_exp(_mm256_sub_ps(_mm256_load_ps(s + t), max_v));

        _mm256_store_ps(s + t, p);
        sum = _mm256_add_ps(sum, p);
    }
    shrink = row->max == max ? 1 : expf(row->max - max);
    row->max = max;
    row->sum = row->sum * shrink + vec_sum(sum);
    return shrink;
}

/* Elements [d, d + 8 * vecs) of out = out * shrink + sum of p[t] * v[t], for `rows` rows of a
 * token. */
static inline __attribute__((always_inline)) void
attn_weigh_at(float *out, const float *p, const ATTN_ELEM *v, int hd, int n,
              const float *shrink, const struct kern_attn_ahead *ahead, int d,
              const int vecs, const int rows)
{
    __m256 acc[2][8];

#pragma GCC unroll 2
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++)
            acc[r][j] = _mm256_mul_ps(_mm256_set1_ps(shrink[r]),
                                      _mm256_loadu_ps(out + r * hd + d + 8 * j));
    }
    for (int t = 0; t < n; t++, v += ATTN_STRIDE(hd)) {
        __m256 w[2];

        if (d == 0 && ahead->bytes)
            kern_attn_prefetch(ahead, v, ATTN_BYTES(hd));
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            w[r] = _mm256_set1_ps(p[r * ATTN_KEYS + t] * ATTN_SCALE(v, hd));
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++) {
            __m256 y = ATTN_LOAD(v + d + 8 * j);

#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                acc[r][j] = _mm256_fmadd_ps(w[r], y, acc[r][j]);
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++)
            _mm256_storeu_ps(out + r * hd + d + 8 * j, acc[r][j]);
    }
}

/* All of it, as many elements at a time as there are registers, so that values are read in the
 * order of memory. */
ATTN_APART static void attn_weigh(float *out, const float *p, const ATTN_ELEM *v, int hd,
                                  int n, float shrink,
                                  const struct kern_attn_ahead *ahead)
{
    int d = 0;

    for (; d + 64 <= hd; d += 64)
        attn_weigh_at(out, p, v, hd, n, &shrink, ahead, d, 8, 1);
    for (; d + 32 <= hd; d += 32)
        attn_weigh_at(out, p, v, hd, n, &shrink, ahead, d, 4, 1);
    for (; d < hd; d += 8) {
        __m256 acc = _mm256_mul_ps(_mm256_set1_ps(shrink), attn_get_f32(out, d, hd));

        for (int t = 0; t < n; t++) {
            const ATTN_ELEM *value = v + t * (int64_t)ATTN_STRIDE(hd);

            acc = _mm256_fmadd_ps(_mm256_set1_ps(p[t] * ATTN_SCALE(value, hd)),
                                  attn_get(value, d, hd), acc);
        }
        attn_put_f32(out, d, hd, acc);
    }
}

/* The same for two rows, where hd is a multiple of 32. */
ATTN_APART static void attn_weigh_two(float *out, const float *p, const ATTN_ELEM *v,
                                      int hd, int n, const float shrink[2],
                                      const struct kern_attn_ahead *ahead)
{
    for (int d = 0; d < hd; d += 32)
        attn_weigh_at(out, p, v, hd, n, shrink, ahead, d, 4, 2);
}

static float *attn_out(const struct kern_attn_args *a, int row)
{
    return a->out + row / a->g * a->out_stride + (int64_t)(row % a->g) * a->head_dim;
}

/* Tokens [t, t + most) that row `row` may see. */
static int attn_visible(const struct kern_attn_args *a, int row, int64_t t, int most)
{
    int64_t end = a->pos0 + row / a->g + 1;
    int64_t n = (end < a->kv_hi ? end : a->kv_hi) - t;

    return n < 0 ? 0 : n < most ? (int)n : most;
}

static void attn_part_pieces(struct kern_attn_piece *out, const struct kern_attn_args *a,
                             int64_t t)
{
    int64_t left = a->kv_hi - t;

    kern_attn_pieces(out, a, t, left < ATTN_PART ? left : ATTN_PART,
                     (size_t)ATTN_STRIDE(a->head_dim) * sizeof(ATTN_ELEM));
}

/* Two rows of a token go together, where there are two. */
static int attn_together(const struct kern_attn_args *a, int row)
{
    return a->head_dim % 32 == 0 && row % a->g + 1 < a->g ? 2 : 1;
}

static struct kern_attn_ahead attn_ahead(const struct kern_attn_args *a, int64_t t)
{
    return (struct kern_attn_ahead){
        .bytes =
            kern_attn_ahead_bytes(a, ATTN_AHEAD, t, ATTN_PART, ATTN_BYTES(a->head_dim))};
}

/* Scores of the tokens from t on for all rows, [rows][ATTN_KEYS] at s. The first row reads them
 * from memory, the others from a cache. after: what is read after these. */
static void attn_scores(const struct kern_attn_args *a, float *s, int64_t t,
                        const void *after)
{
    struct kern_attn_ahead ahead = attn_ahead(a, t);
    struct kern_attn_piece pieces[KERN_ATTN_PIECES_MAX(ATTN_KEYS)];
    int together;

    attn_part_pieces(pieces, a, t);
    for (int r = 0; r < a->n_tok * a->g;
         r += together, s += together * ATTN_KEYS, ahead.bytes = 0) {
        const float *q =
            a->q + r / a->g * a->q_stride + (int64_t)(r % a->g) * a->head_dim;
        const struct kern_attn_piece *p = pieces;
        int n = attn_visible(a, r, t, ATTN_PART);

        together = attn_together(a, r);
        for (int first = 0; first < n; first += (int)p++->n) {
            const int m = kern_attn_piece_n(p, n - first);

            ahead.end = (const ATTN_ELEM *)p->k + ATTN_STRIDE(a->head_dim);
            ahead.next = first + m < n ? kern_attn_piece_low(p + 1, n - first - m,
                                                             ATTN_BYTES(a->head_dim))
                                       : after;
            (together == 2 ? attn_dots_two : attn_dots)(s + first, q, p->k, a->head_dim,
                                                        m, a->scale, &ahead);
        }
    }
}

/* Add the values of the tokens from t on, times their weights. */
static void attn_values(const struct kern_attn_args *a, const float *s, int64_t t,
                        const void *after, float *shrink)
{
    struct kern_attn_ahead ahead = attn_ahead(a, t);
    struct kern_attn_piece pieces[KERN_ATTN_PIECES_MAX(ATTN_KEYS)];
    int together;

    attn_part_pieces(pieces, a, t);
    for (int r = 0; r < a->n_tok * a->g;
         r += together, s += together * ATTN_KEYS, ahead.bytes = 0) {
        const struct kern_attn_piece *p = pieces;
        int n = attn_visible(a, r, t, ATTN_PART);

        together = attn_together(a, r);
        for (int first = 0; first < n; first += (int)p++->n) {
            const int m = kern_attn_piece_n(p, n - first);

            ahead.end = (const ATTN_ELEM *)p->v + m * ATTN_STRIDE(a->head_dim);
            ahead.next = first + m < n ? p[1].v : after;
            if (together == 2)
                attn_weigh_two(attn_out(a, r), s + first, p->v, a->head_dim, m,
                               shrink + r, &ahead);
            else
                attn_weigh(attn_out(a, r), s + first, p->v, a->head_dim, m, shrink[r],
                           &ahead);
            shrink[r] = shrink[r + together - 1] = 1;
        }
    }
}

/* The address that is read after the tile [t, end): keys of the next tile, or anything after the
 * last. */
static const void *attn_next_tile(const struct kern_attn_args *a, int64_t t, int64_t end)
{
    int64_t n = a->kv_hi - end < ATTN_KEYS ? a->kv_hi - end : ATTN_KEYS;
    const size_t bytes = ATTN_BYTES(a->head_dim);

    return n > 0 ? kern_attn_low_key(a, end + (n - 1) / ATTN_PART * ATTN_PART, ATTN_PART,
                                     bytes)
                 : kern_attn_token(a, t, bytes).v;
}

/* The tile of tokens [t, end). The parts of its keys are read from the last to the first, which is
 * the order of memory. */
static void attn_tile(const struct kern_attn_args *a, struct attn_row *state, int64_t t,
                      int64_t end)
{
    float *s = a->scratch, shrink[KERN_ATTN_ROWS_MAX];
    const size_t bytes = ATTN_BYTES(a->head_dim);

    for (int64_t at = t + (end - t - 1) / ATTN_PART * ATTN_PART; at >= t; at -= ATTN_PART)
        attn_scores(a, s + (at - t), at,
                    at > t ? kern_attn_low_key(a, at - ATTN_PART, ATTN_PART, bytes)
                           : kern_attn_token(a, t, bytes).v);
    for (int r = 0; r < a->n_tok * a->g; r++) {
        int n = attn_visible(a, r, t, ATTN_KEYS);

        shrink[r] = n > 0 ? attn_softmax(&state[r], s + r * ATTN_KEYS, n) : 1;
    }
    for (int64_t at = t; at < end; at += ATTN_PART)
        attn_values(a, s + (at - t), at,
                    at + ATTN_PART < end ? kern_attn_token(a, at + ATTN_PART, bytes).v
                                         : attn_next_tile(a, t, end),
                    shrink);
}

static void attn_finish(const struct kern_attn_args *a, int row,
                        const struct attn_row *state)
{
    const __m256 by = _mm256_set1_ps(state->sum > 0 ? 1 / state->sum : 0);
    float *out = attn_out(a, row);

    for (int d = 0; d < a->head_dim; d += 8)
        attn_put_f32(out, d, a->head_dim,
                     _mm256_mul_ps(by, attn_get_f32(out, d, a->head_dim)));
    if (a->lse)
        a->lse[row] = state->sum > 0 ? state->max + logf(state->sum) : -INFINITY;
}

static void attn_run(const struct kern_attn_args *a)
{
    struct attn_row state[KERN_ATTN_ROWS_MAX];
    const int rows = a->n_tok * a->g;

    for (int r = 0; r < rows; r++) {
        float *out = attn_out(a, r);

        state[r] = (struct attn_row){.max = -INFINITY};
        for (int d = 0; d < a->head_dim; d++)
            out[d] = 0;
    }
    for (int64_t t = a->kv_lo; t < a->kv_hi; t += ATTN_KEYS)
        attn_tile(a, state, t, t + ATTN_KEYS < a->kv_hi ? t + ATTN_KEYS : a->kv_hi);
    for (int r = 0; r < rows; r++)
        attn_finish(a, r, &state[r]);
}

#endif
