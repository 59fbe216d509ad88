#include "kernels/kern.h"

static void to_f16_ref(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = kern_f16_of(x[i]);
}

const struct kern_variant kern_to_f16_ref = {
    .name = "ref",
    .op = KERN_TO_F16,
    .precision = KERN_EXACT,
    .fn.to_f16 = to_f16_ref,
};
