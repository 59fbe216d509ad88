/* kernels/x86/attn_few_avx512.h - attention of few query rows (decode) in AVX-512, for every type
 * of keys and values; attn_avx512.h says what an including file defines.
 *
 * Keys are read once, sixteen at a time, by up to four rows of a token together; their dot products
 * are folded into one vector of scores by a shuffle-and-add tree. Memory bounds one or two rows,
 * arithmetic groups of eight. A row's bits do not depend on how many go together.
 */
#ifndef KERNELS_ATTN_FEW_AVX512_H
#define KERNELS_ATTN_FEW_AVX512_H

#include "kernels/x86/attn_row_avx512.h"

/* Floats from the scores of a row to those of the next. */
#define ATTN_LD_SMALL_M (ATTN_KEYS_SMALL_M + 16)
/* Bytes from what is read to what is prefetched. Memory and arithmetic took turns without: two
 * threads of a Zen 5 read keys and values for 1, 4, 8 rows from memory 1.1 to 1.5 times as fast. */
#define ATTN_AHEAD     8192
#define ATTN_BYTES(hd) (ATTN_STRIDE(hd) * sizeof(ATTN_ELEM)) /* of a key */

/* out[step * r]: sixteen sums whose sum is that of the products of row r of q with a key. */
ATTN_INLINE void attn_dot(__m512 *out, const int step, const float *q,
                          const ATTN_ELEM *key, const int hd, const bool pairs,
                          const int rows)
{
    const int ld = (hd + 15) / 16 * 16;
    __m512 v[4];

#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        v[r] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int d = 0; pairs && d < hd; d += 32) {
        __m512 x[2];

        attn_load_pair(x, key + d);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            v[r] = _mm512_fmadd_ps(_mm512_load_ps(q + r * ld + d), x[0], v[r]);
            v[r] = _mm512_fmadd_ps(_mm512_load_ps(q + r * ld + d + 16), x[1], v[r]);
        }
    }
#pragma GCC unroll 8
    for (int d = 0; !pairs && d < hd; d += 16) {
        __m512 x = ATTN_LOAD(attn_mask(hd - d), key + d);

#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            v[r] = _mm512_fmadd_ps(_mm512_load_ps(q + r * ld + d), x, v[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        out[step * r] = _mm512_mul_ps(v[r], _mm512_set1_ps(ATTN_SCALE(key, hd)));
}

/* Sixteen scores: of each row of q against n <= 16 / rows keys, of which k is the first, with the
 * highest address; a missing key repeats the last one. */
ATTN_INLINE __m512 attn_dot16(const float *q, const ATTN_ELEM *k, const int hd, int64_t n,
                              const bool pairs, const int rows)
{
    const int keys = 16 / rows;
    __m512 v[16];
    int64_t last = (n - 1) * ATTN_STRIDE(hd);

    /* Key by key, in the order of memory: where the keys are not in a cache, reading 16 rows in
     * turn took 1.5 times as long on Zen 4. The assembly, which is empty, makes the next key
     * depend on this one's product; else the compiler mixes the loads of four keys, which took
     * 1.2 times as long. It names q as well, whose vectors the compiler would keep for all keys,
     * most of them on the stack. */
#pragma GCC unroll 4
    for (int four = keys - 4; four >= 0; four -= 4) {
        if (four >= n) {
#pragma GCC unroll 4
            for (int i = four; i < four + 4; i++)
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++)
                    v[r * keys + i] = _mm512_setzero_ps();
            continue;
        }
#pragma GCC unroll 4
        for (int i = four + 3; i >= four; i--) {
            attn_dot(v + i, keys, q, k - (i < n ? (int64_t)i * ATTN_STRIDE(hd) : last),
                     hd, pairs, rows);
            __asm__("" : "+r"(k), "+r"(q), "+v"(v[i]));
        }
    }
    return attn_fold16(v, attn_add);
}

/* Lanes of x to s, those of each row to its own. */
ATTN_INLINE void attn_put_scores(float *s, __m512 x, const int rows)
{
    if (rows == 1) {
        _mm512_storeu_ps(s, x);
    } else if (rows == 2) {
        _mm256_storeu_ps(s, _mm512_castps512_ps256(x));
        _mm256_storeu_ps(s + ATTN_LD_SMALL_M, _mm512_extractf32x8_ps(x, 1));
    } else {
        _mm_storeu_ps(s, _mm512_castps512_ps128(x));
        _mm_storeu_ps(s + ATTN_LD_SMALL_M, _mm512_extractf32x4_ps(x, 1));
        _mm_storeu_ps(s + 2 * ATTN_LD_SMALL_M, _mm512_extractf32x4_ps(x, 2));
        _mm_storeu_ps(s + 3 * ATTN_LD_SMALL_M, _mm512_extractf32x4_ps(x, 3));
    }
}

/* Scores of `rows` queries against the first n keys of a tile. Up to 15 floats more are written of
 * each. */
ATTN_INLINE void attn_scores(float *s, const float *q,
                             const struct kern_attn_piece *pieces, const int hd,
                             int64_t n, struct kern_attn_ahead ahead, const bool pairs,
                             const int rows)
{
    const int keys = 16 / rows;
    const struct kern_attn_piece *piece = pieces;

    for (int64_t first = 0; first < n; first += piece++->n) {
        const ATTN_ELEM *k = piece->k;
        int64_t m = piece->n < n - first ? piece->n : n - first;

        ahead.end = k + ATTN_STRIDE(hd);
        ahead.next = first + m < n
                         ? kern_attn_piece_low(piece + 1, n - first - m, ATTN_BYTES(hd))
                         : pieces->v;
        for (int64_t i = (m - 1) / keys * keys; i >= 0; i -= keys) {
            int64_t left = m - i < keys ? m - i : keys;

            kern_attn_prefetch(&ahead, k - (i + left - 1) * ATTN_STRIDE(hd),
                               keys * ATTN_BYTES(hd));
            attn_put_scores(s + first + i,
                            attn_dot16(q, k - i * ATTN_STRIDE(hd), hd, left, pairs, rows),
                            rows);
        }
    }
}

/* acc[r] = acc[r] * shrink[r] + sum of s[r][key] * v[key] over the first n keys of a tile; `vecs`
 * whole or masked vectors at a time. ahead.next: what is read after this tile. */
ATTN_INLINE void attn_weigh(float *acc, const float *s,
                            const struct kern_attn_piece *pieces, const int hd, int64_t n,
                            struct kern_attn_ahead ahead, const float *shrink,
                            const int vecs, const int rows)
{
    const int ld = (hd + 15) / 16 * 16;
    const void *const after = ahead.next;

    for (int d = 0; d < hd; d += 16 * vecs) {
        const struct kern_attn_piece *piece = pieces;
        __m512 sum[4][8];

#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
            for (int j = 0; j < vecs; j++)
                sum[r][j] = _mm512_mul_ps(_mm512_load_ps(acc + r * ld + d + 16 * j),
                                          _mm512_set1_ps(shrink[r]));
        }
        for (int64_t first = 0; first < n; first += piece++->n) {
            const ATTN_ELEM *v = piece->v;
            int64_t m = piece->n < n - first ? piece->n : n - first;

            ahead.end = v + m * ATTN_STRIDE(hd);
            ahead.next = first + m < n ? piece[1].v : after;
            for (int64_t key = 0; key < m; key++, v += ATTN_STRIDE(hd)) {
                __m512 x[4];

                kern_attn_prefetch(&ahead, v, ATTN_BYTES(hd));
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++)
                    x[r] = _mm512_set1_ps(s[r * ATTN_LD_SMALL_M + first + key] *
                                          ATTN_SCALE(v, hd));
#pragma GCC unroll 8
                for (int j = 0; vecs > 1 && j < vecs; j += 2) {
                    __m512 y[2];

                    attn_load_pair(y, v + d + 16 * j);
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++) {
                        sum[r][j] = _mm512_fmadd_ps(x[r], y[0], sum[r][j]);
                        sum[r][j + 1] = _mm512_fmadd_ps(x[r], y[1], sum[r][j + 1]);
                    }
                }
                if (vecs == 1) {
                    __m512 y = ATTN_LOAD(attn_mask(hd - d), v + d);

#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++)
                        sum[r][0] = _mm512_fmadd_ps(x[r], y, sum[r][0]);
                }
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
            for (int j = 0; j < vecs; j++)
                _mm512_store_ps(acc + r * ld + d + 16 * j, sum[r][j]);
        }
    }
}

/* A tile of n keys for `rows` rows that see all of them; q, acc and state are of the first. A key
 * or value that was loaded, and widened, is used for all of them. */
ATTN_INLINE void attn_small_rows(const struct kern_attn_piece *pieces, int64_t n,
                                 struct kern_attn_ahead ahead, const float *q, float *acc,
                                 struct attn_row *state, float *s, const int hd,
                                 const int vecs, const int rows)
{
    const int ld = (hd + 15) / 16 * 16;
    const int at_once =
        rows * vecs > 16 ? 16 / vecs : rows; /* their sums are registers */
    float shrink[4];

    attn_scores(s, q, pieces, hd, n, ahead, vecs > 1, rows);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        shrink[r] = attn_softmax(&state[r], s + r * ATTN_LD_SMALL_M, n, n);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r += at_once, ahead.bytes = 0)
        attn_weigh(acc + r * ld, s + r * ATTN_LD_SMALL_M, pieces, hd, n, ahead,
                   shrink + r, vecs, at_once);
}

/* The address that is read after the tile at t, in the next tile or, after the last, anywhere, and
 * how far ahead. */
ATTN_INLINE struct kern_attn_ahead attn_small_ahead(const struct kern_attn_args *a,
                                                    int64_t t, const int hd)
{
    const size_t bytes = ATTN_BYTES(hd);
    const int64_t n = ATTN_KEYS_SMALL_M, end = t + n;

    return (struct kern_attn_ahead){
        .next = end < a->kv_hi ? kern_attn_low_key(a, end, n, bytes)
                               : kern_attn_token(a, t, bytes).v,
        .bytes = kern_attn_ahead_bytes(a, ATTN_AHEAD, t, n, bytes)};
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
        struct kern_attn_ahead ahead = attn_small_ahead(a, t, hd);
        int together;

        attn_tile_pieces(pieces, a, t, ATTN_KEYS_SMALL_M);
        /* Rows after the first find keys and values in a cache. */
        for (int r = 0; r < rows; r += together, ahead.bytes = 0) {
            const int left = a->g - r % a->g; /* rows of this token */
            int64_t n = attn_visible(a, r, t, ATTN_KEYS_SMALL_M);

            together = vecs > 1 && left >= 4 ? 4 : vecs > 1 && left >= 2 ? 2 : 1;
            if (n == 0)
                continue;
            if (vecs > 1 && together == 4)
                attn_small_rows(pieces, n, ahead, q + r * ld, acc + r * ld, &state[r], s,
                                hd, vecs, 4);
            else if (vecs > 1 && together == 2)
                attn_small_rows(pieces, n, ahead, q + r * ld, acc + r * ld, &state[r], s,
                                hd, vecs, 2);
            else
                attn_small_rows(pieces, n, ahead, q + r * ld, acc + r * ld, &state[r], s,
                                hd, vecs, 1);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int d = 0; vecs > 1 && d < ld; d += 32)
            attn_reorder(acc + r * ld + d, attn_join);
        attn_finish(a, r, acc + r * ld, &state[r]);
    }
}

#endif
