/* kernels/arm/attn_neon.h - flash-style attention in NEON, for every type of keys and values.
 *
 * An including file defines ATTN_ELEM, the type of an element; ATTN_STRIDE(hd), elements from a
 * vector of hd to the next; ATTN_SCALE(p, hd), the factor of the vector at p; and attn_load(x,
 * p): eight elements as f32, not scaled. Scores and weights take the factors of their keys and
 * values. */
#ifndef KERNELS_ARM_ATTN_NEON_H
#define KERNELS_ARM_ATTN_NEON_H

#include "kernels/attn_pieces.h"
#include "kernels/arm/vec_neon.h"

#include <math.h>

#define KEYS 32 /* keys in a tile, which serves every row before the next is read */

struct row {
    float max, sum;
};

static float dot(const float *q, const ATTN_ELEM *k, int hd)
{
    float32x4_t s0 = vdupq_n_f32(0), s1 = vdupq_n_f32(0);
    float sum;
    int d = 0;

    for (; d + 8 <= hd; d += 8) {
        float32x4_t x[2];

        attn_load(x, k + d);
        s0 = vfmaq_f32(s0, vld1q_f32(q + d), x[0]);
        s1 = vfmaq_f32(s1, vld1q_f32(q + d + 4), x[1]);
    }
    sum = vaddvq_f32(vaddq_f32(s0, s1));
    for (; d < hd; d++)
        sum += q[d] * (float)k[d];
    return sum * ATTN_SCALE(k, hd);
}

/* Scores s[0, n) become weights under the row's new maximum, up to a whole vector 0.
 * Returns the factor by which what was accumulated before must shrink. */
static float softmax(struct row *row, float *s, int n)
{
    float32x4_t max_v = vdupq_n_f32(row->max), sum = vdupq_n_f32(0);
    float shrink, max;

    for (int t = n; t % 4 != 0; t++)
        s[t] = -INFINITY;
    for (int t = 0; t < n; t += 4)
        max_v = vmaxq_f32(max_v, vld1q_f32(s + t));
    max = vmaxvq_f32(max_v);
    if (max == -INFINITY)
        max = 0; /* nothing but -infinity so far: weights 0, not NaN */
    max_v = vdupq_n_f32(max);
    for (int t = 0; t < n; t += 4) {
        float32x4_t p = vec_exp(vsubq_f32(vld1q_f32(s + t), max_v));

        vst1q_f32(s + t, p);
        sum = vaddq_f32(sum, p);
    }
    shrink = row->max == max ? 1 : expf(row->max - max);
    row->max = max;
    row->sum = row->sum * shrink + vaddvq_f32(sum);
    return shrink;
}

/* out = out * shrink + sum of p[t] * v[t] */
static void weigh(float *out, const float *p, const ATTN_ELEM *v, int hd, int n,
                  float shrink)
{
    int d = 0;

    for (; d + 8 <= hd; d += 8) {
        float32x4_t a = vmulq_n_f32(vld1q_f32(out + d), shrink);
        float32x4_t b = vmulq_n_f32(vld1q_f32(out + d + 4), shrink);

        for (int t = 0; t < n; t++) {
            const ATTN_ELEM *value = v + t * (int64_t)ATTN_STRIDE(hd);
            float weight = p[t] * ATTN_SCALE(value, hd);
            float32x4_t x[2];

            attn_load(x, value + d);
            a = vfmaq_n_f32(a, x[0], weight);
            b = vfmaq_n_f32(b, x[1], weight);
        }
        vst1q_f32(out + d, a);
        vst1q_f32(out + d + 4, b);
    }
    for (; d < hd; d++) {
        float sum = out[d] * shrink;

        for (int t = 0; t < n; t++) {
            const ATTN_ELEM *value = v + t * (int64_t)ATTN_STRIDE(hd);

            sum += p[t] * ATTN_SCALE(value, hd) * (float)value[d];
        }
        out[d] = sum;
    }
}

static float *out_of(const struct kern_attn_args *a, int row)
{
    return a->out + row / a->g * a->out_stride + (int64_t)(row % a->g) * a->head_dim;
}

/* The first n keys of a tile against one row. */
static void attend(const struct kern_attn_args *a, int r, struct row *state,
                   const struct kern_attn_piece *pieces, int n)
{
    const float *q = a->q + r / a->g * a->q_stride + (int64_t)(r % a->g) * a->head_dim;
    const struct kern_attn_piece *p = pieces;
    float s[KEYS], shrink;

    for (int first = 0; first < n; first += (int)p++->n)
        for (int i = kern_attn_piece_n(p, n - first) - 1; i >= 0; i--)
            s[first + i] =
                a->scale *
                dot(q, (const ATTN_ELEM *)p->k - i * (int64_t)ATTN_STRIDE(a->head_dim),
                    a->head_dim);
    shrink = softmax(state, s, n);
    p = pieces;
    for (int first = 0; first < n; first += (int)p++->n, shrink = 1)
        weigh(out_of(a, r), s + first, p->v, a->head_dim, kern_attn_piece_n(p, n - first),
              shrink);
}

static void attn_run(const struct kern_attn_args *a)
{
    struct row state[KERN_ATTN_ROWS_MAX];
    const int rows = a->n_tok * a->g;

    for (int r = 0; r < rows; r++) {
        state[r] = (struct row){.max = -INFINITY};
        for (int d = 0; d < a->head_dim; d++)
            out_of(a, r)[d] = 0;
    }
    for (int64_t t = a->kv_lo; t < a->kv_hi; t += KEYS) {
        struct kern_attn_piece pieces[KERN_ATTN_PIECES_MAX(KEYS)];
        int64_t left = a->kv_hi - t;

        kern_attn_pieces(pieces, a, t, left < KEYS ? left : KEYS,
                         (size_t)ATTN_STRIDE(a->head_dim) * sizeof(ATTN_ELEM));
        for (int r = 0; r < rows; r++) {
            int64_t end = a->pos0 + r / a->g + 1;
            int64_t n = (end < a->kv_hi ? end : a->kv_hi) - t;

            if (n > 0)
                attend(a, r, &state[r], pieces, n < KEYS ? (int)n : KEYS);
        }
    }
    for (int r = 0; r < rows; r++) {
        float by = state[r].sum > 0 ? 1 / state[r].sum : 0;

        for (int d = 0; d < a->head_dim; d++)
            out_of(a, r)[d] *= by;
        if (a->lse)
            a->lse[r] = state[r].sum > 0 ? state[r].max + logf(state[r].sum) : -INFINITY;
    }
}

#endif
