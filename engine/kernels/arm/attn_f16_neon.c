/* Attention over f16 keys and values. */
#include <arm_neon.h>

#include "cpu/cpu.h"

static inline void attn_load(float32x4_t x[2], const float16_t *p)
{
    float16x8_t h = vld1q_f16(p);

    x[0] = vcvt_f32_f16(vget_low_f16(h));
    x[1] = vcvt_f32_f16(vget_high_f16(h));
}

#define ATTN_ELEM         float16_t
#define ATTN_STRIDE(hd)   (hd)
#define ATTN_SCALE(p, hd) 1.0f
#include "kernels/arm/attn_neon.h"

const struct kern_variant kern_attn_f16_neon = {
    .name = "neon",
    .op = KERN_ATTN_F16,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_run,
};
