/* Attention over bf16 keys and values by the BF16 dot product: queries and weights of the softmax
 * are rounded to bf16. Relaxed precision. Many rows go the way of attn_avx512bf16.h.
 *
 * The group of rows of one token (decode) has a way of its own: keys are multiplied as they are in
 * memory, and values two at a time as pairs, which takes half the instructions of widening both
 * to f32 (attn_few_avx512.h). A group then waits for memory, not for arithmetic. Rows are padded
 * to four or eight. */
#include "cpu/cpu.h"

#define KV                   BF16
#define ATTN_BATCH_INVARIANT 0
#define ATTN_DOT_ROWS_MIN    6
#define ATTN_EXACT           kern_attn_bf16_avx512
#define ATTN_LOAD_BF16(m, p) _mm512_maskz_loadu_epi16(m, p)
#include "kernels/x86/attn_load_avx512.h"
#include "kernels/x86/attn_avx512bf16.h"

#define GROUP_MIN   3 /* rows; one or two wait for memory in f32, too */
#define GROUP_MAX   8
#define GROUP_PAIRS (ATTN_KEYS_SMALL_M / 2)

/* Thirty-two numbers of a row, key or value. */
ATTN_INLINE __m512bh load(const void *p)
{
    return (__m512bh)_mm512_loadu_si512(p);
}

/* Scores of four rows of q against the first n keys of a tile. Up to 15 floats more are written of
 * each. */
ATTN_INLINE void group_scores(float *s, const uint32_t *q,
                              const struct kern_attn_piece *pieces, const int hd,
                              int64_t n, struct kern_attn_ahead ahead)
{
    const struct kern_attn_piece *piece = pieces;

    for (int64_t first = 0; first < n; first += piece++->n) {
        const uint16_t *k = piece->k;
        int64_t m = piece->n < n - first ? piece->n : n - first;

        ahead.end = k + hd;
        ahead.next = first + m < n
                         ? kern_attn_piece_low(piece + 1, n - first - m, ATTN_BYTES(hd))
                         : pieces->v;
        for (int64_t i = (m - 1) / 4 * 4; i >= 0; i -= 4) {
            int64_t left = m - i < 4 ? m - i : 4;
            __m512 v[16];

            kern_attn_prefetch(&ahead, k - (i + left - 1) * hd, 4 * ATTN_BYTES(hd));
#pragma GCC unroll 4
            for (int j = 3; j >= 0; j--) {
                const uint16_t *key = k - (i + (j < left ? j : left - 1)) * hd;

#pragma GCC unroll 4
                for (int r = 0; r < 4; r++)
                    v[4 * r + j] = _mm512_setzero_ps();
#pragma GCC unroll 4
                for (int d = 0; d < hd; d += 32)
#pragma GCC unroll 4
                    for (int r = 0; r < 4; r++)
                        v[4 * r + j] = _mm512_dpbf16_ps(v[4 * r + j], load(key + d),
                                                        load(q + (r * hd + d) / 2));
                __asm__("" : "+r"(k), "+r"(q), "+v"(v[j])); /* as in attn_dot16() */
            }
            attn_put_scores(s + first + i, attn_fold16(v, attn_add), 4);
        }
    }
}

/* Add p[r][pair] * (values x and y) to the sums of 32 vecs columns. */
ATTN_INLINE void group_pair(__m512 sum[GROUP_MAX][4], const uint32_t *p,
                            const uint16_t *x, const uint16_t *y, const int vecs,
                            const int rows)
{
#pragma GCC unroll 2
    for (int j = 0; j < vecs; j++) {
        const __m512i a = _mm512_loadu_si512(x + 32 * j);
        const __m512i b = y ? _mm512_loadu_si512(y + 32 * j) : _mm512_setzero_si512();
        const __m512bh low = (__m512bh)_mm512_unpacklo_epi16(a, b);
        const __m512bh high = (__m512bh)_mm512_unpackhi_epi16(a, b);

#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const __m512bh w = (__m512bh)_mm512_set1_epi32((int)p[r * GROUP_PAIRS]);

            sum[r][2 * j] = _mm512_dpbf16_ps(sum[r][2 * j], low, w);
            sum[r][2 * j + 1] = _mm512_dpbf16_ps(sum[r][2 * j + 1], high, w);
        }
    }
}

/* acc[r] = acc[r] * shrink[r] + sum of p[r] * v over the first n values of a tile, 32 vecs columns
 * at a time, in the order of attn_unzip(). */
ATTN_INLINE void group_weigh(float *acc, const uint32_t *p,
                             const struct kern_attn_piece *pieces, const int hd,
                             int64_t n, struct kern_attn_ahead ahead, const float *shrink,
                             const int rows)
{
    const int vecs = rows > 4 ? 1 : 2;
    const void *const after = ahead.next;

#pragma GCC unroll 1
    for (int d = 0; d < hd; d += 32 * vecs, ahead.bytes = 0) {
        const struct kern_attn_piece *piece = pieces;
        const uint16_t *odd = NULL; /* waits for its pair in the next piece */
        __m512 sum[GROUP_MAX][4];

#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int j = 0; j < 2 * vecs; j++)
                sum[r][j] = _mm512_mul_ps(_mm512_load_ps(acc + r * hd + d + 16 * j),
                                          _mm512_set1_ps(shrink[r]));
        for (int64_t first = 0; first < n; first += piece++->n) {
            const uint16_t *v = (const uint16_t *)piece->v + d;
            int64_t m = piece->n < n - first ? piece->n : n - first, key = 0;

            ahead.end = v + m * hd;
            ahead.next = first + m < n ? piece[1].v : after;
            if (odd) {
                group_pair(sum, p + first / 2, odd, v, vecs, rows);
                odd = NULL;
                key = 1;
            }
            for (; key + 2 <= m; key += 2) {
                kern_attn_prefetch(&ahead, v + key * hd, 2 * ATTN_BYTES(hd));
                group_pair(sum, p + (first + key) / 2, v + key * hd, v + (key + 1) * hd,
                           vecs, rows);
            }
            if (key < m)
                odd = v + key * hd;
        }
        if (odd)
            group_pair(sum, p + n / 2, odd, NULL, vecs, rows);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int j = 0; j < 2 * vecs; j++)
                _mm512_store_ps(acc + r * hd + d + 16 * j, sum[r][j]);
    }
}

/* The n scores of a row become weights. Returns by how much what was accumulated before must
 * shrink. */
static float group_softmax(const struct attn_dot_space *sp, int row, int64_t n,
                           struct attn_row *state)
{
    const int64_t to = (n + 31) / 32 * 32;
    const bool whole = n == to;
    float *s = sp->s + row * ATTN_LD_SMALL_M, shrink;
    float max = _mm512_reduce_max_ps(attn_dot_max(sp, s, n, to, whole));

    max = max > state->max ? max : state->max;
    if (max == -INFINITY)
        max = 0; /* nothing but -infinity so far: weights 0, not NaN */
    shrink = state->max == max ? 1.0f : exp2f(state->max - max);
    state->sum = state->sum * shrink +
                 _mm512_reduce_add_ps(attn_dot_softmax(sp, sp->p + row * GROUP_PAIRS, s,
                                                       max, n, to, whole));
    state->max = max;
    return shrink;
}

ATTN_INLINE void group(const struct kern_attn_args *a, const int hd, const int rows)
{
    struct attn_dot_space sp = {.acc = a->scratch};
    struct attn_row state[GROUP_MAX];
    float shrink[GROUP_MAX] = {0};

    sp.s = sp.acc + rows * hd;
    sp.q = (uint32_t *)(sp.s + rows * ATTN_LD_SMALL_M);
    sp.p = sp.q + rows * hd / 2;
    attn_dot_load_q(a, sp.q, rows, hd, hd);
    memset(sp.acc, 0, sizeof(float) * (size_t)(rows * hd));
    memset(sp.p, 0, sizeof(*sp.p) * (size_t)rows * GROUP_PAIRS);
    for (int r = 0; r < rows; r++)
        state[r] = (struct attn_row){-INFINITY, 0};
    for (int64_t t = a->kv_lo; t < a->kv_hi; t += ATTN_KEYS_SMALL_M) {
        struct kern_attn_piece pieces[KERN_ATTN_PIECES_MAX(ATTN_KEYS_SMALL_M)];
        const int64_t n = attn_visible(a, 0, t, ATTN_KEYS_SMALL_M);
        struct kern_attn_ahead ahead = attn_small_ahead(a, t, hd), again = ahead;

        if (n == 0)
            break;
        attn_tile_pieces(pieces, a, t, ATTN_KEYS_SMALL_M);
        for (int r = 0; r < rows; r += 4, again.bytes = 0)
            group_scores(sp.s + r * ATTN_LD_SMALL_M, sp.q + r * hd / 2, pieces, hd, n,
                         again);
        for (int r = 0; r < a->g; r++)
            shrink[r] = group_softmax(&sp, r, n, &state[r]);
        group_weigh(sp.acc, sp.p, pieces, hd, n, ahead, shrink, rows);
    }
    for (int r = 0; r < a->g; r++) {
        for (int d = 0; d < hd; d += 32)
            attn_reorder(sp.acc + r * hd + d, attn_unzip);
        attn_finish(a, r, sp.acc + r * hd, &state[r]);
    }
}

static void run(const struct kern_attn_args *a)
{
    const bool alone = a->n_tok == 1 && a->g >= GROUP_MIN && a->g <= GROUP_MAX;

    if (alone && a->head_dim == 64)
        a->g > 4 ? group(a, 64, 8) : group(a, 64, 4);
    else if (alone && a->head_dim == 128)
        a->g > 4 ? group(a, 128, 8) : group(a, 128, 4);
    else
        attn_dot_run(a);
}

const struct kern_variant kern_attn_bf16_avx512bf16 = {
    .name = "avx512bf16",
    .op = KERN_ATTN_BF16,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512BF16),
    .precision = KERN_RELAXED,
    .fn.attn = run,
};
