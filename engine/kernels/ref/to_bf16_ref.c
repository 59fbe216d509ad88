#include "kernels/kern.h"

static void to_bf16_ref(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = kern_bf16_of(x[i]);
}

const struct kern_variant kern_to_bf16_ref = {
    .name = "ref",
    .op = KERN_TO_BF16,
    .precision = KERN_EXACT,
    .fn.to_bf16 = to_bf16_ref,
};
