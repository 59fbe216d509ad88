#include "kernels/kern.h"

#include "cpu/cpu.h"

#include <arm_neon.h>
#include <math.h>

/* Two passes: the value, then its first place. v - v is 0 for a finite number and NaN for
 * all others, which leaves bits in the union of all differences. */
static int64_t argmax_neon(const float *x, int64_t n)
{
    float32x4_t max = vdupq_n_f32(-INFINITY);
    uint32x4_t not_finite = vdupq_n_u32(0);
    float best;
    int64_t i = 0;

    for (; i + 4 <= n; i += 4) {
        float32x4_t v = vld1q_f32(x + i);

        not_finite = vorrq_u32(not_finite, vreinterpretq_u32_f32(vsubq_f32(v, v)));
        max = vmaxnmq_f32(max, v);
    }
    best = vmaxnmvq_f32(max);
    for (; i < n; i++) {
        if (!isfinite(x[i]))
            return -1;
        best = x[i] > best ? x[i] : best;
    }
    if (vmaxvq_u32(not_finite) != 0)
        return -1;
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
