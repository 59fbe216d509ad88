#include "kernels/kern.h"

static void rope_ref(float *x, const float *cos, const float *sin, int n_heads,
                     int head_dim)
{
    const int half = head_dim / 2;

    for (int h = 0; h < n_heads; h++, x += head_dim) {
        for (int i = 0; i < half; i++) {
            float a = x[i], b = x[i + half];

            x[i] = a * cos[i] - b * sin[i];
            x[i + half] = b * cos[i] + a * sin[i];
        }
    }
}

const struct kern_variant kern_rope_ref = {
    .name = "ref",
    .op = KERN_ROPE,
    .precision = KERN_EXACT,
    .fn.rope = rope_ref,
};
