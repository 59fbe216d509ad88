#include "kernels/kern.h"

#include "cpu/cpu.h"

#include <arm_neon.h>
#include <math.h>

static float sum_of_squares(const float *x, int64_t n)
{
    float32x4_t s[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    int64_t i = 0;
    float sum;

    for (; i + 16 <= n; i += 16) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            float32x4_t v = vld1q_f32(x + i + 4 * j);

            s[j] = vfmaq_f32(s[j], v, v);
        }
    }
    sum = vaddvq_f32(vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3])));
    for (; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

static void rmsnorm_neon(float *out, const float *x, const float *w, int64_t n, float eps)
{
    const float scale = 1 / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i,
                  vmulq_f32(vmulq_n_f32(vld1q_f32(x + i), scale), vld1q_f32(w + i)));
    for (; i < n; i++)
        out[i] = x[i] * scale * w[i];
}

const struct kern_variant kern_rmsnorm_neon = {
    .name = "neon",
    .op = KERN_RMSNORM,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .fn.rmsnorm = rmsnorm_neon,
};
