#include "kernels/kern.h"

#include <math.h>

static int64_t argmax_ref(const float *x, int64_t n)
{
    int64_t at = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return -1;
        if (x[i] > x[at])
            at = i;
    }
    return at;
}

const struct kern_variant kern_argmax_ref = {
    .name = "ref",
    .op = KERN_ARGMAX,
    .precision = KERN_EXACT,
    .fn.argmax = argmax_ref,
};
