#include "kernels/kern.h"

#include <math.h>

static int64_t argmax_ref(const float *x, int64_t n)
{
    float best = -INFINITY;
    int64_t at = 0;

    for (int64_t i = 0; i < n; i++) {
        if (x[i] > best) { /* false for NaN */
            best = x[i];
            at = i;
        }
    }
    return at;
}

const struct kern_variant kern_argmax_ref = {
    .name = "ref",
    .op = KERN_ARGMAX,
    .precision = KERN_EXACT,
    .fn.argmax = argmax_ref,
};
