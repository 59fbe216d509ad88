#include "kernels/kern.h"

#include <math.h>

static void rmsnorm_ref(float *out, const float *x, const float *w, int64_t n, float eps)
{
    float sum = 0, scale;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    scale = 1 / sqrtf(sum / (float)n + eps);
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] * scale * w[i];
}

const struct kern_variant kern_rmsnorm_ref = {
    .name = "ref",
    .op = KERN_RMSNORM,
    .precision = KERN_EXACT,
    .fn.rmsnorm = rmsnorm_ref,
};
