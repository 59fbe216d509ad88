/* kernels/x86/attn_avx512.h - flash-style attention in AVX-512, for every type of keys and
 * values.
 *
 * An including file defines ATTN_ELEM, the type of an element; ATTN_STRIDE(hd), elements from a
 * vector of hd to the next; ATTN_SCALE(p, hd), the factor of the vector at p; ATTN_LOAD(mask, p):
 * sixteen elements as f32, not scaled, those outside the mask zero and not read;
 * attn_load_pair(): thirty-two of them in an order that is cheap to load, with attn_split() and
 * attn_join() to and from that order; and ATTN_BATCH_INVARIANT.
 *
 * Two ways, by how often a key is used. Few query rows (decode): keys are read once, sixteen at a
 * time; their dot products are folded into one vector of scores by a shuffle-and-add tree. Memory
 * bounds it. A batch-invariant variant goes this way always, since a row is computed by itself.
 * Many rows (prefill): a tile of keys is transposed and its values widened into scratch, then both
 * products run as register-blocked outer products, like a GEMM. Scores carry log2(e), so that
 * softmax needs only 2^x. The running maximum is FlashAttention's.
 */
#ifndef KERNELS_ATTN_AVX512_H
#define KERNELS_ATTN_AVX512_H

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
#define ATTN_MR           8 /* rows of a prefill tile; 8 x 2 vectors of sums leave room */
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
    __m512 top = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps(), max_v;
    float max, shrink;

    for (int64_t i = 0; i < to; i += 16)
        top = _mm512_mask_max_ps(top, attn_mask(n - i), top, _mm512_load_ps(s + i));
    max = _mm512_reduce_max_ps(top);
    max = max > row->max ? max : row->max;
    if (max == -INFINITY)
        max = 0; /* nothing but -infinity so far: weights 0, not NaN */
    max_v = _mm512_set1_ps(max);
    for (int64_t i = 0; i < to; i += 16) {
        __m512 p = attn_exp2(_mm512_sub_ps(_mm512_load_ps(s + i), max_v));

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

/* ---- few rows ---- */

/* Sixteen sums whose sum is that of the products of q with a key. */
ATTN_INLINE __m512 attn_dot(const float *q, const ATTN_ELEM *key, const int hd,
                            const bool pairs)
{
    __m512 v = _mm512_setzero_ps();

#pragma GCC unroll 8
    for (int d = 0; pairs && d < hd; d += 32) {
        __m512 x[2];

        attn_load_pair(x, key + d);
        v = _mm512_fmadd_ps(_mm512_load_ps(q + d), x[0], v);
        v = _mm512_fmadd_ps(_mm512_load_ps(q + d + 16), x[1], v);
    }
#pragma GCC unroll 8
    for (int d = 0; !pairs && d < hd; d += 16)
        v = _mm512_fmadd_ps(_mm512_load_ps(q + d), ATTN_LOAD(attn_mask(hd - d), key + d),
                            v);
    return _mm512_mul_ps(v, _mm512_set1_ps(ATTN_SCALE(key, hd)));
}

/* Scores of one query against n <= 16 keys, of which k is the first, with the highest address; a
 * missing key repeats the last one. */
ATTN_INLINE __m512 attn_dot16(const float *q, const ATTN_ELEM *k, const int hd, int64_t n,
                              const bool pairs)
{
    __m512 v[16];
    int64_t last = (n - 1) * ATTN_STRIDE(hd);

    /* Key by key, in the order of memory: where the keys are not in a cache, reading 16 rows in
     * turn took 1.5 times as long on Zen 4. The assembly, which is empty, makes the next key
     * depend on this one's product; else the compiler mixes the loads of four keys, which took
     * 1.2 times as long. */
#pragma GCC unroll 4
    for (int four = 12; four >= 0; four -= 4) {
        if (four >= n) {
#pragma GCC unroll 4
            for (int i = four; i < four + 4; i++)
                v[i] = _mm512_setzero_ps();
            continue;
        }
#pragma GCC unroll 4
        for (int i = four + 3; i >= four; i--) {
            v[i] =
                attn_dot(q, k - (i < n ? (int64_t)i * ATTN_STRIDE(hd) : last), hd, pairs);
            __asm__("" : "+r"(k), "+v"(v[i]));
        }
    }
    return attn_fold16(v, attn_add);
}

/* Scores of one query against the first n keys of a tile. Up to 15 floats more are written. */
ATTN_INLINE void attn_scores(float *s, const float *q,
                             const struct kern_attn_piece *piece, const int hd, int64_t n,
                             const bool pairs)
{
    for (int64_t first = 0; first < n; first += piece++->n) {
        const ATTN_ELEM *k = piece->k;
        int64_t m = piece->n < n - first ? piece->n : n - first;

        for (int64_t i = (m - 1) / 16 * 16; i >= 0; i -= 16)
            _mm512_storeu_ps(s + first + i, attn_dot16(q, k - i * ATTN_STRIDE(hd), hd,
                                                       m - i < 16 ? m - i : 16, pairs));
    }
}

/* acc = acc * shrink + sum of s[key] * v[key] over the first n keys of a tile; `vecs` whole or
 * masked vectors at a time. */
ATTN_INLINE void attn_weigh(float *acc, const float *s,
                            const struct kern_attn_piece *pieces, const int hd, int64_t n,
                            float shrink, const int vecs)
{
    for (int d = 0; d < hd; d += 16 * vecs) {
        const struct kern_attn_piece *piece = pieces;
        __m512 sum[8];

#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++)
            sum[j] =
                _mm512_mul_ps(_mm512_load_ps(acc + d + 16 * j), _mm512_set1_ps(shrink));
        for (int64_t first = 0; first < n; first += piece++->n) {
            const ATTN_ELEM *v = piece->v;
            int64_t m = piece->n < n - first ? piece->n : n - first;

            for (int64_t key = 0; key < m; key++, v += ATTN_STRIDE(hd)) {
                __m512 x = _mm512_set1_ps(s[first + key] * ATTN_SCALE(v, hd));

#pragma GCC unroll 8
                for (int j = 0; vecs > 1 && j < vecs; j += 2) {
                    __m512 y[2];

                    attn_load_pair(y, v + d + 16 * j);
                    sum[j] = _mm512_fmadd_ps(x, y[0], sum[j]);
                    sum[j + 1] = _mm512_fmadd_ps(x, y[1], sum[j + 1]);
                }
                if (vecs == 1)
                    sum[0] =
                        _mm512_fmadd_ps(x, ATTN_LOAD(attn_mask(hd - d), v + d), sum[0]);
            }
        }
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++)
            _mm512_store_ps(acc + d + 16 * j, sum[j]);
    }
}

ATTN_INLINE void attn_small_m(const struct kern_attn_args *a, const int hd,
                              const int vecs)
{
    int rows = a->n_tok * a->g, ld = (hd + 15) / 16 * 16;
    float *q = a->scratch, *acc = q + rows * ld, *s = acc + rows * ld;
    struct attn_row state[ATTN_BATCH_INVARIANT ? KERN_ATTN_ROWS_MAX : ATTN_SMALL_M_ROWS];

    attn_load_q(a, q, rows, ld, vecs > 1);
    memset(acc, 0, sizeof(float) * (size_t)(rows * ld));
    for (int r = 0; r < rows; r++)
        state[r] = (struct attn_row){-INFINITY, 0};
    for (int64_t t = a->kv_lo; t < a->kv_hi; t += ATTN_KEYS_SMALL_M) {
        struct kern_attn_piece pieces[KERN_ATTN_PIECES_MAX(ATTN_KEYS_SMALL_M)];

        attn_tile_pieces(pieces, a, t, ATTN_KEYS_SMALL_M);
        for (int r = 0; r < rows; r++) {
            int64_t n = attn_visible(a, r, t, ATTN_KEYS_SMALL_M);
            float shrink;

            if (n == 0)
                continue;
            attn_scores(s, q + r * ld, pieces, hd, n, vecs > 1);
            shrink = attn_softmax(&state[r], s, n, n);
            attn_weigh(acc + r * ld, s, pieces, hd, n, shrink, vecs);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int d = 0; vecs > 1 && d < ld; d += 32)
            attn_reorder(acc + r * ld + d, attn_join);
        attn_finish(a, r, acc + r * ld, &state[r]);
    }
}

/* ---- many rows ---- */

/* Sixteen vectors become their columns. */
ATTN_INLINE void attn_transpose16(__m512 r[16])
{
    __m512 t[16];

#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512d x = _mm512_castps_pd(t[i + h]), y = _mm512_castps_pd(t[i + 2 + h]);

            r[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            r[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    }
    /* r[4 i + j], quarter q: column 4 q + j of rows 4 i .. 4 i + 3 */
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512 a = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88);
        __m512 b = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88);
        __m512 c = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
        __m512 d = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);

        t[j] = _mm512_shuffle_f32x4(a, b, 0x88);
        t[4 + j] = _mm512_shuffle_f32x4(c, d, 0x88);
        t[8 + j] = _mm512_shuffle_f32x4(a, b, 0xdd);
        t[12 + j] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        r[i] = t[i];
}

/* Where n <= 16 keys and values of a tile are, from number `key` on, as in a piece: in one, or,
 * where they are in several, copied to `spare`, [2][16] vectors. */
ATTN_INLINE void attn_group(const struct kern_attn_piece *piece, int64_t key, int64_t n,
                            const int hd, ATTN_ELEM *spare, const ATTN_ELEM **k,
                            const ATTN_ELEM **v)
{
    const int64_t stride = ATTN_STRIDE(hd);

    for (; key >= piece->n; piece++)
        key -= piece->n;
    *k = (const ATTN_ELEM *)piece->k - key * stride;
    *v = (const ATTN_ELEM *)piece->v + key * stride;
    if (n <= piece->n - key)
        return;
    for (int64_t i = 0; i < n; i++, key++) {
        if (key == piece->n)
            piece++, key = 0;
        memcpy(spare + (15 - i) * stride, (const ATTN_ELEM *)piece->k - key * stride,
               sizeof(*spare) * (size_t)stride);
        memcpy(spare + (16 + i) * stride, (const ATTN_ELEM *)piece->v + key * stride,
               sizeof(*spare) * (size_t)stride);
    }
    *k = spare + 15 * stride;
    *v = spare + 16 * stride;
}

/* Elements [d, d + 16) of a vector, those outside the mask zero; none read where it is 0. */
ATTN_INLINE __m512 attn_load_at(__mmask16 mask, const ATTN_ELEM *p, int d, const int hd)
{
    __m512 x = ATTN_LOAD(mask, p + d);

    return mask ? _mm512_mul_ps(x, _mm512_set1_ps(ATTN_SCALE(p, hd))) : x;
}

/* Tile of n keys -> kt[ld][ATTN_KEYS], values -> vw[ATTN_KEYS][ld]; what is missing is
 * 0. */
ATTN_INLINE void attn_load_kv(const struct kern_attn_piece *pieces, const int hd,
                              const int ld, int64_t n, float *kt, float *vw,
                              ATTN_ELEM *spare)
{
    const int64_t stride = ATTN_STRIDE(hd);

    for (int64_t key = 0; key < ATTN_KEYS; key += 16) {
        const ATTN_ELEM *k = pieces->k, *v = pieces->v;
        int64_t m = n - key < 16 ? n - key : 16;

        if (m > 0) /* else nothing is read */
            attn_group(pieces, key, m, hd, spare, &k, &v);
        for (int d = 0; d < ld; d += 16) {
            __m512 r[16];

#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) {
                __mmask16 mask = i < m ? attn_mask(hd - d) : 0;

                r[i] = attn_load_at(mask, k - i * stride, d, hd);
                _mm512_store_ps(vw + (key + i) * ld + d,
                                attn_load_at(mask, v + i * stride, d, hd));
            }
            attn_transpose16(r);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                _mm512_store_ps(kt + (int64_t)(d + i) * ATTN_KEYS + key, r[i]);
        }
    }
}

/* c[ATTN_MR][16 np] = first * c + a[ATTN_MR][k] b[k][16 np]; `first` holds a factor per
 * row, NULL for 0. */
ATTN_INLINE void attn_tile(float *c, int64_t ldc, const float *a, const int64_t lda,
                           const float *b, const int64_t ldb, int64_t k,
                           const float *first, const int np)
{
    __m512 sum[ATTN_MR][2];

#pragma GCC unroll 8
    for (int i = 0; i < ATTN_MR; i++) {
#pragma GCC unroll 2
        for (int p = 0; p < np; p++)
            sum[i][p] = first ? _mm512_mul_ps(_mm512_set1_ps(first[i]),
                                              _mm512_load_ps(c + i * ldc + 16 * p))
                              : _mm512_setzero_ps();
    }
    for (int64_t j = 0; j < k; j++) {
        __m512 b0 = _mm512_load_ps(b + j * ldb);
        __m512 b1 = np > 1 ? _mm512_load_ps(b + j * ldb + 16) : b0;

#pragma GCC unroll 8
        for (int i = 0; i < ATTN_MR; i++) {
            __m512 x = _mm512_set1_ps(a[i * lda + j]);

            sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
            if (np > 1)
                sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ATTN_MR; i++) {
#pragma GCC unroll 2
        for (int p = 0; p < np; p++)
            _mm512_store_ps(c + i * ldc + 16 * p, sum[i][p]);
    }
}

/* Where things lie in scratch, in floats; see KERN_ATTN_SCRATCH_BYTES. */
struct attn_space {
    float *q, *acc, *kt, *vw, *s;
    ATTN_ELEM *spare;
    struct attn_row state[KERN_ATTN_ROWS_MAX];
};

/* Rows [r, r + ATTN_MR) against the tile of keys at t. */
ATTN_INLINE void attn_rows(const struct kern_attn_args *a, struct attn_space *sp, int r,
                           int64_t t, const int ld)
{
    int rows = a->n_tok * a->g;
    float shrink[ATTN_MR];
    int64_t most = 0;

    for (int i = 0; i < ATTN_MR && r + i < rows; i++) {
        int64_t n = attn_visible(a, r + i, t, ATTN_KEYS);

        most = n > most ? n : most;
    }
    if (most == 0)
        return;
    for (int64_t key = 0; key < most; key += 32)
        attn_tile(sp->s + key, ATTN_KEYS, sp->q + (int64_t)r * ld, ld, sp->kt + key,
                  ATTN_KEYS, ld, NULL, 2);
    for (int i = 0; i < ATTN_MR; i++) {
        int64_t n = r + i < rows ? attn_visible(a, r + i, t, ATTN_KEYS) : 0;

        shrink[i] = 1;
        if (n > 0)
            shrink[i] =
                attn_softmax(&sp->state[r + i], sp->s + i * ATTN_KEYS, n, ATTN_KEYS);
        else
            memset(sp->s + i * ATTN_KEYS, 0, sizeof(float) * ATTN_KEYS);
    }
    for (int d = 0; d < ld; d += 32) {
        float *c = sp->acc + (int64_t)r * ld + d;

        if (ld - d >= 32)
            attn_tile(c, ld, sp->s, ATTN_KEYS, sp->vw + d, ld, most, shrink, 2);
        else
            attn_tile(c, ld, sp->s, ATTN_KEYS, sp->vw + d, ld, most, shrink, 1);
    }
}

ATTN_INLINE void attn_many(const struct kern_attn_args *a, const int hd)
{
    const int ld = (hd + 15) / 16 * 16;
    int rows = a->n_tok * a->g, padded = (rows + ATTN_MR - 1) / ATTN_MR * ATTN_MR;
    struct attn_space sp = {.q = a->scratch};

    sp.acc = sp.q + (int64_t)padded * ld;
    sp.kt = sp.acc + (int64_t)padded * ld;
    sp.vw = sp.kt + ATTN_KEYS * ld;
    sp.s = sp.vw + ATTN_KEYS * ld;
    sp.spare = (ATTN_ELEM *)(sp.s + ATTN_MR * ATTN_KEYS);
    attn_load_q(a, sp.q, padded, ld, false);
    memset(sp.acc, 0, sizeof(float) * (size_t)(padded * ld));
    for (int r = 0; r < rows; r++)
        sp.state[r] = (struct attn_row){-INFINITY, 0};
    for (int64_t t = a->kv_lo; t < a->kv_hi; t += ATTN_KEYS) {
        int64_t n = a->kv_hi - t < ATTN_KEYS ? a->kv_hi - t : ATTN_KEYS;
        struct kern_attn_piece pieces[KERN_ATTN_PIECES_MAX(ATTN_KEYS)];

        attn_tile_pieces(pieces, a, t, ATTN_KEYS);
        attn_load_kv(pieces, hd, ld, n, sp.kt, sp.vw, sp.spare);
        for (int r = 0; r < rows; r += ATTN_MR)
            attn_rows(a, &sp, r, t, ld);
    }
    for (int r = 0; r < rows; r++)
        attn_finish(a, r, sp.acc + (int64_t)r * ld, &sp.state[r]);
}

/* The common head sizes are compiled for themselves: their strides become displacements.
 */
static void attn_run(const struct kern_attn_args *a)
{
    const bool small_m = ATTN_BATCH_INVARIANT || a->n_tok * a->g <= ATTN_SMALL_M_ROWS;

    if (a->head_dim == 64)
        small_m ? attn_small_m(a, 64, 4) : attn_many(a, 64);
    else if (a->head_dim == 128)
        small_m ? attn_small_m(a, 128, 8) : attn_many(a, 128);
    else
        small_m ? attn_small_m(a, a->head_dim, 1) : attn_many(a, a->head_dim);
}

#endif
