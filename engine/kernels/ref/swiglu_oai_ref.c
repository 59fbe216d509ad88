#include "kernels/kern.h"

#include <math.h>

/* Comparisons that leave NaN as it is. */
static void swiglu_oai_ref(float *out, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float g = gate[i] > 7 ? 7 : gate[i];
        float u = up[i] > 7 ? 7 : up[i] < -7 ? -7 : up[i];

        out[i] = (u + 1) * (g / (1 + expf(-1.702f * g)));
    }
}

const struct kern_variant kern_swiglu_oai_ref = {
    .name = "ref",
    .op = KERN_SWIGLU_OAI,
    .precision = KERN_EXACT,
    .fn.gate = swiglu_oai_ref,
};
