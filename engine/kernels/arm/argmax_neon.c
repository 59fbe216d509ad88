#include "kernels/kern.h"

#include "cpu/cpu.h"

#include <arm_neon.h>
#include <math.h>

/* Two passes: the value, then its first place. FMAXNM takes the number when one operand
 * is NaN, so NaN never enters. */
static int64_t argmax_neon(const float *x, int64_t n)
{
    float32x4_t max = vdupq_n_f32(-INFINITY);
    float best;
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        max = vmaxnmq_f32(max, vld1q_f32(x + i));
    best = vmaxnmvq_f32(max);
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    if (best == -INFINITY)
        return 0;
    for (i = 0; x[i] != best; i++)
        ;
    return i;
}

const struct kern_variant kern_argmax_neon = {
    .name = "neon",
    .op = KERN_ARGMAX,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .fn.argmax = argmax_neon,
};
