#include "kernels/kern.h"

#include "cpu/cpu.h"

#include <arm_neon.h>

static void rope_neon(float *x, const float *cos, const float *sin, int n_heads,
                      int head_dim)
{
    const int half = head_dim / 2;

    for (int h = 0; h < n_heads; h++, x += head_dim) {
        int i = 0;

        for (; i + 4 <= half; i += 4) {
            float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + i + half);
            float32x4_t c = vld1q_f32(cos + i), s = vld1q_f32(sin + i);

            vst1q_f32(x + i, vfmsq_f32(vmulq_f32(a, c), b, s));
            vst1q_f32(x + i + half, vfmaq_f32(vmulq_f32(b, c), a, s));
        }
        for (; i < half; i++) {
            float a = x[i], b = x[i + half];

            x[i] = a * cos[i] - b * sin[i];
            x[i + half] = b * cos[i] + a * sin[i];
        }
    }
}

const struct kern_variant kern_rope_neon = {
    .name = "neon",
    .op = KERN_ROPE,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .fn.rope = rope_neon,
};
