#include "kernels/kern.h"
#include "kernels/arm/vec_neon.h"

#include "cpu/cpu.h"

#include <string.h>

static float32x4_t silu_mul(float32x4_t gate, float32x4_t up)
{
    float32x4_t e = vec_exp(vnegq_f32(gate));

    return vmulq_f32(vdivq_f32(gate, vaddq_f32(vdupq_n_f32(1.0f), e)), up);
}

static void silu_mul_neon(float *out, const float *gate, const float *up, int64_t n)
{
    float g[4] = {0}, u[4] = {0};
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, silu_mul(vld1q_f32(gate + i), vld1q_f32(up + i)));
    if (i == n)
        return;
    memcpy(g, gate + i, (size_t)(n - i) * sizeof(*g));
    memcpy(u, up + i, (size_t)(n - i) * sizeof(*u));
    vst1q_f32(g, silu_mul(vld1q_f32(g), vld1q_f32(u)));
    memcpy(out + i, g, (size_t)(n - i) * sizeof(*g));
}

const struct kern_variant kern_silu_mul_neon = {
    .name = "neon",
    .op = KERN_SILU_MUL,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .fn.gate = silu_mul_neon,
};
