#include "kernels/kern.h"

#include <math.h>

/* x / 2 (1 + tanh(y)) = x / (1 + exp(-2 y)). */
static void gelu_mul_ref(float *out, const float *gate, const float *up, int64_t n)
{
    const float twice = 1.5957691216f, cubic = 0.044715f; /* 2 sqrt(2 / pi) */

    for (int64_t i = 0; i < n; i++) {
        float x = gate[i], y = twice * x * (1 + cubic * x * x);

        out[i] = x / (1 + expf(-y)) * up[i];
    }
}

const struct kern_variant kern_gelu_mul_ref = {
    .name = "ref",
    .op = KERN_GELU_MUL,
    .precision = KERN_EXACT,
    .fn.gate = gelu_mul_ref,
};
