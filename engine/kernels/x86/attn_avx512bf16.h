/* kernels/x86/attn_avx512bf16.h - attention of many rows by the BF16 dot product.
 *
 * It follows attn_avx512.h, whose variant does fewer than ATTN_DOT_ROWS_MIN rows. Queries
 * (times the scale of the scores) and weights of the softmax are rounded to bf16, and so are
 * f32 keys and values. A code of 8 bits is exact in bf16; its vector's scale goes to the
 * score, and to the weight before that is rounded. All sums are f32. A tile of keys and values
 * is turned into pairs once for all rows of the call; the products with it are blocks of 8 rows
 * by 32 columns, as in a GEMM. The softmax works on 16 rows, so that their maxima and sums are
 * the lanes of one vector.
 *
 * An including file defines ATTN_LOAD_BF16(mask, p): thirty-two elements as bf16, not
 * scaled, those outside the mask zero and not read; ATTN_DOT_ROWS_MIN, from which on it pays, as
 * measured on Zen 5; and ATTN_EXACT, the variant in AVX-512 for the same type.
 */
#ifndef KERNELS_ATTN_AVX512BF16_H
#define KERNELS_ATTN_AVX512BF16_H

#include "kernels/x86/attn_avx512.h"

#define ATTN_DOT_KEYS  128 /* in a tile, which with its values is in the second cache */
#define ATTN_DOT_PAIRS (ATTN_DOT_KEYS / 2)
#define ATTN_DOT_ROWS  16
#define ATTN_DOT_AHEAD 32 /* keys from those being converted to those prefetched */

/* Where things are in scratch. A pair is two bf16 in a word, the first in the lower half. */
struct attn_dot_space {
    uint32_t *q;    /* [rows][ld / 2]: pairs of elements */
    uint32_t *k;    /* [keys / 32][ld / 2][32]: pairs of elements of 32 keys */
    uint32_t *v;    /* [ld / 32][keys / 2][32]: pairs of keys, 32 columns in the order of
                       attn_unzip() */
    uint32_t *p;    /* [16][keys / 2]: weights, pairs of keys */
    float *s, *acc; /* scores [16][keys], sums [rows][ld] in the order of v */
    float *k_scale, *v_scale; /* [keys] */
    ATTN_ELEM *spare;
    /* of each row: the largest score so far, and the sum of its weights */
    float max[KERN_ATTN_ROWS_MAX] __attribute__((aligned(64)));
    float sum[KERN_ATTN_ROWS_MAX] __attribute__((aligned(64)));
};

ATTN_INLINE __m512 attn_larger(__m512 a, __m512 b)
{
    return _mm512_max_ps(a, b);
}

ATTN_INLINE __mmask32 attn_mask32(int64_t n)
{
    return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1;
}

/* 2^x for x <= 0 to 3e-6 of it, 2^0 exactly: minimax terms on abs(f) <= 1/2; 0 from -150
 * downwards, NaN for NaN. */
ATTN_INLINE __m512 attn_exp2_short(__m512 x)
{
    __m512 n, f, p = _mm512_set1_ps(9.58285e-3f);

    x = _mm512_max_ps(_mm512_set1_ps(-150.0f), x);
    n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    f = _mm512_sub_ps(x, n);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5906428e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4024099e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9312419e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* Thirty-two columns in the order in which unpacking 16-bit numbers leaves them, to their
 * own. */
ATTN_INLINE void attn_unzip(__m512 x[2])
{
    const __m512i low =
        _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512 first = x[0];

    x[0] = _mm512_permutex2var_ps(first, low, x[1]);
    x[1] = _mm512_permutex2var_ps(first, high, x[1]);
}

/* Scaled queries as pairs; rows beyond the last are 0. */
ATTN_INLINE void attn_dot_load_q(const struct kern_attn_args *a, uint32_t *q, int rows,
                                 const int hd, const int ld)
{
    __m512 scale = _mm512_set1_ps(a->scale * ATTN_LOG2E);

    for (int r = 0; r < rows; r++) {
        bool real = r < a->n_tok * a->g;
        const float *x =
            real ? a->q + r / a->g * a->q_stride + r % a->g * (int64_t)hd : a->q;

        for (int d = 0; d < ld; d += 32) {
            __mmask16 m0 = real ? attn_mask(hd - d) : 0;
            __mmask16 m1 = real ? attn_mask(hd - d - 16) : 0;
            __m512 x0 = _mm512_mul_ps(scale, _mm512_maskz_loadu_ps(m0, x + d));
            __m512 x1 = _mm512_mul_ps(scale, _mm512_maskz_loadu_ps(m1, x + d + 16));

            _mm512_store_si512(q + (r * ld + d) / 2,
                               (__m512i)_mm512_cvtne2ps_pbh(x1, x0));
        }
    }
}

/* Vector i of those from p on, `step` elements apart; from number n on they are 0 and not
 * read. */
ATTN_INLINE __m512i attn_dot_vector(const ATTN_ELEM *p, int64_t step, int64_t i,
                                    int64_t n, int d, const int hd)
{
    return i < n ? ATTN_LOAD_BF16(attn_mask32(hd - d), p + i * step + d)
                 : _mm512_setzero_si512();
}

/* n <= 16 keys and values, from number `key` of a tile on, as pairs; what is missing to 16 is
 * 0. */
ATTN_INLINE void attn_dot_load_16(const struct attn_dot_space *sp, int64_t key,
                                  const ATTN_ELEM *k, const ATTN_ELEM *v, const int64_t n,
                                  const int hd, const int ld)
{
    const int64_t stride = ATTN_STRIDE(hd);
    uint32_t *to_k = sp->k + key / 32 * 16 * ld + key % 32, *to_v = sp->v + key * 16;

    for (int i = 0; ATTN_SCALED && i < 16; i++) {
        sp->k_scale[key + i] = i < n ? ATTN_SCALE(k - i * stride, hd) : 0;
        sp->v_scale[key + i] = i < n ? ATTN_SCALE(v + i * stride, hd) : 0;
    }
    for (int d = 0; d < ld; d += 32) {
        __m512 r[16];

#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            r[i] = _mm512_castsi512_ps(attn_dot_vector(k, -stride, i, n, d, hd));
        attn_transpose16(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            _mm512_store_ps(to_k + (d / 2 + i) * 32, r[i]);
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += 2) {
            __m512i x = attn_dot_vector(v, stride, i, n, d, hd);
            __m512i y = attn_dot_vector(v, stride, i + 1, n, d, hd);
            uint32_t *to = to_v + d * ATTN_DOT_PAIRS + i * 16;

            _mm512_store_si512(to, _mm512_unpacklo_epi16(x, y));
            _mm512_store_si512(to + 16, _mm512_unpackhi_epi16(x, y));
        }
    }
}

/* Ask for the lines of n vectors, of which the one with the lowest address is `step` vectors from
 * p. They may be anyone's. */
ATTN_INLINE void attn_dot_prefetch(const ATTN_ELEM *p, int64_t step, int64_t n,
                                   const int hd)
{
    const int64_t bytes = ATTN_STRIDE(hd) * (int64_t)sizeof(ATTN_ELEM);
    const uintptr_t from = (uintptr_t)p + (uintptr_t)(step * bytes);

    for (int64_t at = 0; at < n * bytes; at += 64)
        _mm_prefetch((const char *)(from + (uintptr_t)at), _MM_HINT_T0);
}

/* The tile of n keys at t, and zeros to a multiple of 32. */
ATTN_INLINE void attn_dot_load_kv(const struct kern_attn_args *a,
                                  const struct attn_dot_space *sp, int64_t t, int64_t n,
                                  const int hd, const int ld)
{
    struct kern_attn_piece pieces[KERN_ATTN_PIECES_MAX(ATTN_DOT_KEYS)];

    attn_tile_pieces(pieces, a, t, ATTN_DOT_KEYS);
    for (int64_t key = 0; key < (n + 31) / 32 * 32; key += 16) {
        const ATTN_ELEM *k = pieces->k, *v = pieces->v;
        int64_t m = n - key;

        if (m > 0) /* else nothing is read */
            attn_group(pieces, key, m < 16 ? m : 16, hd, sp->spare, &k, &v);
        if (a->kv_hi - t - key > ATTN_DOT_AHEAD) {
            attn_dot_prefetch(k, -ATTN_DOT_AHEAD - 15, 16, hd);
            attn_dot_prefetch(v, ATTN_DOT_AHEAD, 16, hd);
        }
        if (m >= 16)
            attn_dot_load_16(sp, key, k, v, 16, hd, ld);
        else
            attn_dot_load_16(sp, key, k, v, m, hd, ld);
    }
}

/* c[8][32] = first * c + the products of n pairs, a[8][n] with b[n][32]; `first` holds a
 * factor per row, NULL for 0. */
ATTN_INLINE void attn_dot_tile(float *c, const int64_t ldc, const uint32_t *a,
                               const int64_t lda, const uint32_t *b, int64_t n,
                               const float *first)
{
    __m512 sum[8][2];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
#pragma GCC unroll 2
        for (int p = 0; p < 2; p++)
            sum[i][p] = first ? _mm512_mul_ps(_mm512_set1_ps(first[i]),
                                              _mm512_load_ps(c + i * ldc + 16 * p))
                              : _mm512_setzero_ps();
    }
    for (int64_t j = 0; j < n; j++) {
        __m512bh b0 = (__m512bh)_mm512_load_si512(b + 32 * j);
        __m512bh b1 = (__m512bh)_mm512_load_si512(b + 32 * j + 16);

#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[i * lda + j]);

            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, b0);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, b1);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
#pragma GCC unroll 2
        for (int p = 0; p < 2; p++)
            _mm512_store_ps(c + i * ldc + 16 * p, sum[i][p]);
    }
}

/* The largest of the scores s[0, n), lane by lane; to: n or more, a multiple of 32. Scores
 * take the scales of their keys. */
ATTN_INLINE __m512 attn_dot_max(const struct attn_dot_space *sp, float *s, int64_t n,
                                int64_t to, const bool whole)
{
    __m512 top = _mm512_set1_ps(-INFINITY);

    for (int64_t i = 0; i < to; i += 16) {
        __m512 x = _mm512_load_ps(s + i);

        if (ATTN_SCALED) {
            x = _mm512_mul_ps(x, _mm512_load_ps(sp->k_scale + i));
            _mm512_store_ps(s + i, x);
        }
        top = whole ? _mm512_max_ps(top, x)
                    : _mm512_mask_max_ps(top, attn_mask(n - i), top, x);
    }
    return top;
}

/* Sixteen weights, those from n - i on 0. */
ATTN_INLINE __m512 attn_dot_weights(const float *s, __m512 max, int64_t n, int64_t i,
                                    const bool whole)
{
    __m512 p = attn_exp2_short(_mm512_sub_ps(_mm512_load_ps(s + i), max));

    return whole ? p : _mm512_maskz_mov_ps(attn_mask(n - i), p);
}

/* Scores s[0, to) of a row become weights p, those from n on 0. Returns the lanes of their
 * sum: of the weights as rounded, so that they add up to 1, but of those that take the scales
 * of values before they are rounded. */
ATTN_INLINE __m512 attn_dot_softmax(const struct attn_dot_space *sp, uint32_t *p,
                                    const float *s, float max, int64_t n, int64_t to,
                                    const bool whole)
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    __m512 sum = _mm512_setzero_ps(), max_v = _mm512_set1_ps(max);

    for (int64_t i = 0; i < to; i += 32) {
        __m512 p0 = attn_dot_weights(s, max_v, n, i, whole);
        __m512 p1 = attn_dot_weights(s, max_v, n, i + 16, whole);
        __m512bh both;

        if (ATTN_SCALED) {
            sum = _mm512_add_ps(sum, _mm512_add_ps(p0, p1));
            p0 = _mm512_mul_ps(p0, _mm512_load_ps(sp->v_scale + i));
            p1 = _mm512_mul_ps(p1, _mm512_load_ps(sp->v_scale + i + 16));
        }
        both = _mm512_cvtne2ps_pbh(p1, p0);
        if (!ATTN_SCALED)
            sum = _mm512_dpbf16_ps(sum, both, ones);
        _mm512_store_si512(p + i / 2, (__m512i)both);
    }
    return sum;
}

/* The softmax of rows [r, r + n_rows) over the tile, of which row i sees the first n[i] keys,
 * none more than `to`. whole: all of them see `to`. shrink: the factors of what was
 * accumulated before. */
ATTN_INLINE void attn_dot_rows_softmax(struct attn_dot_space *sp, int r, int n_rows,
                                       const int64_t *n, int64_t to, const bool whole,
                                       float *shrink)
{
    __m512 lanes[16], old = _mm512_load_ps(sp->max + r), max, factor;

    for (int i = n_rows; i < ATTN_DOT_ROWS; i++)
        lanes[i] = _mm512_setzero_ps();
    for (int i = 0; i < n_rows; i++)
        lanes[i] = attn_dot_max(sp, sp->s + i * ATTN_DOT_KEYS, n[i], to, whole);
    max = _mm512_max_ps(attn_fold16(lanes, attn_larger), old);
    /* nothing but -infinity so far: weights 0, not NaN */
    max = _mm512_mask_mov_ps(
        max, _mm512_cmp_ps_mask(max, _mm512_set1_ps(-INFINITY), _CMP_EQ_OQ),
        _mm512_setzero_ps());
    _mm512_store_ps(sp->max + r, max);
    for (int i = n_rows; i < ATTN_DOT_ROWS; i++)
        lanes[i] = _mm512_setzero_ps();
    for (int i = 0; i < n_rows; i++)
        lanes[i] =
            attn_dot_softmax(sp, sp->p + i * ATTN_DOT_PAIRS, sp->s + i * ATTN_DOT_KEYS,
                             sp->max[r + i], n[i], to, whole);
    factor = attn_exp2_short(_mm512_sub_ps(old, max));
    _mm512_storeu_ps(shrink, factor);
    _mm512_store_ps(sp->sum + r, _mm512_fmadd_ps(_mm512_load_ps(sp->sum + r), factor,
                                                 attn_fold16(lanes, attn_add)));
}

/* Rows [r, r + 16), or those that there are, against the tile of keys at t. */
ATTN_INLINE void attn_dot_rows(const struct kern_attn_args *a, struct attn_dot_space *sp,
                               int r, int64_t t, const int hd, const int ld)
{
    const int left = a->n_tok * a->g - r, n_rows = left < 16 ? left : ATTN_DOT_ROWS;
    int64_t n[ATTN_DOT_ROWS], most = 0, to;
    bool whole = true;
    float shrink[ATTN_DOT_ROWS];

    for (int i = 0; i < n_rows; i++) {
        n[i] = attn_visible(a, r + i, t, ATTN_DOT_KEYS);
        most = n[i] > most ? n[i] : most;
    }
    if (most == 0)
        return;
    to = (most + 31) / 32 * 32;
    for (int i = 0; i < n_rows; i++)
        whole = whole && n[i] == to;
    for (int64_t key = 0; key < to; key += 32)
        for (int i = 0; i < n_rows; i += 8)
            attn_dot_tile(sp->s + i * ATTN_DOT_KEYS + key, ATTN_DOT_KEYS,
                          sp->q + (int64_t)(r + i) * (ld / 2), ld / 2,
                          sp->k + key / 2 * ld, hd / 2, NULL);
    if (whole)
        attn_dot_rows_softmax(sp, r, n_rows, n, to, true, shrink);
    else
        attn_dot_rows_softmax(sp, r, n_rows, n, to, false, shrink);
    for (int d = 0; d < ld; d += 32)
        for (int i = 0; i < n_rows; i += 8)
            attn_dot_tile(sp->acc + (int64_t)(r + i) * ld + d, ld,
                          sp->p + i * ATTN_DOT_PAIRS, ATTN_DOT_PAIRS,
                          sp->v + d * ATTN_DOT_PAIRS, (most + 1) / 2, shrink + i);
}

ATTN_INLINE void attn_dot_many(const struct kern_attn_args *a, const int hd)
{
    const int ld = (hd + 31) / 32 * 32;
    int rows = a->n_tok * a->g;
    int padded = (rows + ATTN_DOT_ROWS - 1) / ATTN_DOT_ROWS * ATTN_DOT_ROWS;
    struct attn_dot_space sp = {.acc = a->scratch};

    sp.s = sp.acc + (int64_t)padded * ld;
    sp.k_scale = sp.s + ATTN_DOT_ROWS * ATTN_DOT_KEYS;
    sp.v_scale = sp.k_scale + ATTN_DOT_KEYS;
    sp.q = (uint32_t *)(sp.v_scale + ATTN_DOT_KEYS);
    sp.k = sp.q + (int64_t)padded * (ld / 2);
    sp.v = sp.k + ATTN_DOT_PAIRS * ld;
    sp.p = sp.v + ATTN_DOT_PAIRS * ld;
    sp.spare = (ATTN_ELEM *)(sp.p + ATTN_DOT_ROWS * ATTN_DOT_PAIRS);
    attn_dot_load_q(a, sp.q, padded, hd, ld);
    memset(sp.acc, 0, sizeof(float) * (size_t)(padded * ld));
    for (int r = 0; r < padded; r++)
        sp.max[r] = -INFINITY, sp.sum[r] = 0;
    for (int64_t t = a->kv_lo; t < a->kv_hi; t += ATTN_DOT_KEYS) {
        int64_t n = a->kv_hi - t < ATTN_DOT_KEYS ? a->kv_hi - t : ATTN_DOT_KEYS;

        attn_dot_load_kv(a, &sp, t, n, hd, ld);
        for (int r = 0; r < rows; r += ATTN_DOT_ROWS)
            attn_dot_rows(a, &sp, r, t, hd, ld);
    }
    for (int r = 0; r < rows; r++) {
        const struct attn_row state = {sp.max[r], sp.sum[r]};

        for (int d = 0; d < ld; d += 32)
            attn_reorder(sp.acc + (int64_t)r * ld + d, attn_unzip);
        attn_finish(a, r, sp.acc + (int64_t)r * ld, &state);
    }
}

extern const struct kern_variant ATTN_EXACT;

static void attn_dot_run(const struct kern_attn_args *a)
{
    if (a->n_tok * a->g < ATTN_DOT_ROWS_MIN)
        ATTN_EXACT.fn.attn(a);
    else if (a->head_dim == 64)
        attn_dot_many(a, 64);
    else if (a->head_dim == 128)
        attn_dot_many(a, 128);
    else
        attn_dot_many(a, a->head_dim);
}

#endif
