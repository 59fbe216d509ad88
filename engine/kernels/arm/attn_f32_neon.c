/* Attention over f32 keys and values. */
#include <arm_neon.h>

#include "cpu/cpu.h"

static inline void attn_load(float32x4_t x[2], const float *p)
{
    x[0] = vld1q_f32(p);
    x[1] = vld1q_f32(p + 4);
}

#define ATTN_ELEM         float
#define ATTN_STRIDE(hd)   (hd)
#define ATTN_SCALE(p, hd) 1.0f
#include "kernels/arm/attn_neon.h"

const struct kern_variant kern_attn_f32_neon = {
    .name = "neon",
    .op = KERN_ATTN_F32,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_run,
};
