/* kernels/x86/attn_avx512.h - flash-style attention in AVX-512, for every type of keys and
 * values.
 *
 * An including file includes attn_load_avx512.h before, which has ATTN_LOAD(mask, p): sixteen
 * elements as f32, not scaled, those outside the mask zero and not read; and attn_load_pair():
 * thirty-two of them in an order that is cheap to load, with attn_split() and attn_join() to and
 * from that order. It defines ATTN_BATCH_INVARIANT.
 *
 * Two ways, by how often a key is used. Few query rows (decode): attn_few_avx512.h. A
 * batch-invariant variant goes this way always, since a row is computed by itself. Many rows
 * (prefill): a tile of keys is transposed and its values widened into scratch, then both products
 * run as register-blocked outer products, like a GEMM.
 */
#ifndef KERNELS_ATTN_AVX512_H
#define KERNELS_ATTN_AVX512_H

#include "kernels/x86/attn_few_avx512.h"

#define ATTN_MR 8 /* rows of a prefill tile; 8 x 2 vectors of sums leave room */

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
static inline void attn_run(const struct kern_attn_args *a)
{
    const int hd = a->head_dim;

    if (ATTN_BATCH_INVARIANT || a->n_tok * a->g <= ATTN_SMALL_M_ROWS) {
        if (hd == 64)
            attn_small_m(a, 64, 4);
        else if (hd == 128)
            attn_small_m(a, 128, 8);
        else
            attn_small_m(a, hd, 1);
    } else if (hd == 64) {
        attn_many(a, 64);
    } else if (hd == 128) {
        attn_many(a, 128);
    } else {
        attn_many(a, hd);
    }
}

#endif
