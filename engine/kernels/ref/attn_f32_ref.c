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
        const float *k = (const float *)a->k + t * hd, *v = (const float *)a->v + t * hd;
        float score = 0, p;

        for (int d = 0; d < hd; d++)
            score += q[d] * k[d];
        score *= a->scale;
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
            out[d] += p * v[d];
    }
    if (lo >= hi)
        return -INFINITY;
    for (int d = 0; d < hd; d++)
        out[d] /= sum;
    return max + logf(sum);
}

static void attn_f32_ref(const struct kern_attn_args *a)
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

const struct kern_variant kern_attn_f32_ref = {
    .name = "ref",
    .op = KERN_ATTN_F32,
    .precision = KERN_EXACT,
    .fn.attn = attn_f32_ref,
};
