#include "kernels/kern.h"

static void add_ref(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

const struct kern_variant kern_add_ref = {
    .name = "ref",
    .op = KERN_ADD,
    .precision = KERN_EXACT,
    .fn.add = add_ref,
};
