#include "kernels/kern.h"

#include "cpu/cpu.h"

#include <arm_neon.h>

static void add_neon(float *y, const float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vaddq_f32(vld1q_f32(y + i), vld1q_f32(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
}

const struct kern_variant kern_add_neon = {
    .name = "neon",
    .op = KERN_ADD,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .fn.add = add_neon,
};
