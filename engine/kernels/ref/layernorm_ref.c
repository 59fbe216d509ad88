#include "kernels/kern.h"

#include <math.h>

static void layernorm_ref(float *out, const float *x, const float *w, const float *b,
                          int64_t n, float eps)
{
    float sum = 0, squares = 0, mean, scale;

    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    mean = sum / (float)n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    scale = 1 / sqrtf(squares / (float)n + eps);
    for (int64_t i = 0; i < n; i++)
        out[i] = (x[i] - mean) * scale * w[i] + (b ? b[i] : 0);
}

const struct kern_variant kern_layernorm_ref = {
    .name = "ref",
    .op = KERN_LAYERNORM,
    .precision = KERN_EXACT,
    .fn.layernorm = layernorm_ref,
};
