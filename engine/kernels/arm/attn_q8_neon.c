/* Attention over keys and values of 8 bits, which become f32 in registers. */
#include <arm_neon.h>

#include "cpu/cpu.h"
#include "kernels/kv_type.h"

static inline void attn_load(float32x4_t x[2], const int8_t *p)
{
    int16x8_t wide = vmovl_s8(vld1_s8(p));

    x[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
    x[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide)));
}

#define ATTN_ELEM         int8_t
#define ATTN_STRIDE(hd)   kern_q8_bytes(hd)
#define ATTN_SCALE(p, hd) kern_q8_scale(p, hd)
#include "kernels/arm/attn_neon.h"

const struct kern_variant kern_attn_q8_neon = {
    .name = "neon",
    .op = KERN_ATTN_Q8,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_run,
};
