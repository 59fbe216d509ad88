#include "kernels/kern.h"

static void from_bf16_ref(float *out, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = kern_bf16_to(x[i]);
}

const struct kern_variant kern_from_bf16_ref = {
    .name = "ref",
    .op = KERN_FROM_BF16,
    .precision = KERN_EXACT,
    .fn.from_bf16 = from_bf16_ref,
};
