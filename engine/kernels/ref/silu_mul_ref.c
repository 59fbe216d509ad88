#include "kernels/kern.h"

#include <math.h>

static void silu_mul_ref(float *out, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

const struct kern_variant kern_silu_mul_ref = {
    .name = "ref",
    .op = KERN_SILU_MUL,
    .precision = KERN_EXACT,
    .fn.gate = silu_mul_ref,
};
