/* kernels/ref/attn_ref.h - the attention contract of kern.h, carried out literally.
 *
 * An including file defines KV, the type of a stored element; KV_STRIDE(hd), elements from a
 * vector of hd to the next; and KV_AT(vector, d, hd), element d as f32. */
#ifndef KERNELS_ATTN_REF_H
#define KERNELS_ATTN_REF_H

#include "kernels/attn_pieces.h"
#include "kernels/kern.h"

#include <math.h>

/* One query against the keys of its range; returns the log-sum-exp. A larger score found
 * on the way rescales what was summed so far. */
static float attend(const struct kern_attn_args *a, const float *q, float *out,
                    int64_t lo, int64_t hi)
{
    const int hd = a->head_dim;
    float max = -INFINITY, sum = 0;

    for (int d = 0; d < hd; d++)
        out[d] = 0;
    for (int64_t t = lo; t < hi; t++) {
        const struct kern_attn_piece at =
            kern_attn_token(a, t, KV_STRIDE(hd) * sizeof(KV));
        const KV *k = at.k, *v = at.v;
        float score = 0, p;

        for (int d = 0; d < hd; d++)
            score += q[d] * KV_AT(k, d, hd);
        score *= a->scale;
        if (a->softcap != 0)
            score = a->softcap * tanhf(score / a->softcap);
        if (score > max) {
            float shrink = expf(max - score);

            sum *= shrink;
            for (int d = 0; d < hd; d++)
                out[d] *= shrink;
            max = score;
        }
        p = expf(score - max);
        sum += p;
        for (int d = 0; d < hd; d++)
            out[d] += p * KV_AT(v, d, hd);
    }
    if (lo >= hi)
        return -INFINITY;
    for (int d = 0; d < hd; d++)
        out[d] /= sum;
    return max + logf(sum);
}

static void attn_ref(const struct kern_attn_args *a)
{
    for (int i = 0; i < a->n_tok; i++) {
        int64_t end = a->pos0 + i + 1;
        int64_t hi = a->kv_hi < end ? a->kv_hi : end;

        for (int h = 0; h < a->g; h++) {
            int64_t at = (int64_t)h * a->head_dim;
            float lse = attend(a, a->q + i * a->q_stride + at,
                               a->out + i * a->out_stride + at, a->kv_lo, hi);

            if (a->lse)
                a->lse[i * a->g + h] = lse;
        }
    }
}

#endif
