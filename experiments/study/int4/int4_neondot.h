/* experiments/study/int4/int4_neondot.h - int4.h by SDOT, as kernels/arm/dots_neondot.h.
 *
 * An including file defines INT4_SIGNED and INT4_FORM. */
#ifndef STUDY_INT4_NEONDOT_H
#define STUDY_INT4_NEONDOT_H

#include "experiments/study/int4/int4.h"

#define QUANT           Q4_0
#define TILE_DOTS(step) straight_##step
#include "kernels/arm/dots_neondot.h"

/* The codes of two vectors from 16 bytes of straight order. */
TILE_INLINE void unpack(int8x16_t w[2], const uint8_t *at)
{
    uint8x16_t x, low, high;

    /* Load again, and not before what comes before is done: registers are scarce. */
    __asm__ volatile("" : "+r"(at)::"memory");
    x = vld1q_u8(at);
    low = vandq_u8(x, vdupq_n_u8(15));
    high = vshrq_n_u8(x, 4);
    w[0] = vreinterpretq_s8_u8(vzip1q_u8(low, high));
    w[1] = vreinterpretq_s8_u8(vzip2q_u8(low, high));
    if (INT4_SIGNED) {
        w[0] = vsubq_s8(w[0], vdupq_n_s8(KERN_Q4_0_ZERO));
        w[1] = vsubq_s8(w[1], vdupq_n_s8(KERN_Q4_0_ZERO));
    }
}

/* The definitions that gemm_a8_neon.h needs. */
#define straight_end sdot_end
TILE_INLINE void straight_start(int32x4_t dot[4][TILE_MR_MAX], const int32_t *a,
                                const int h, const int mr)
{
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
#pragma GCC unroll 4
        for (int i = 0; i < mr; i++)
            dot[q][i] = vdupq_n_s32(INT4_SIGNED ? 0 : dot_start(a, h, i, mr));
}

TILE_INLINE void straight_add(int32x4_t dot[4][TILE_MR_MAX], const int32_t *a,
                              const uint8_t *s, const int h, const int mr)
{
    (void)h;
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            int8x16_t w[2];

            unpack(w, s + 64 * v + 16 * q);
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++)
#pragma GCC unroll 4
                for (int i = 0; i < mr; i++) {
                    int32x4_t x = vdupq_n_s32(a[(2 * v + k) * mr + i]);

                    dot[q][i] = vdotq_s32(dot[q][i], w[k], vreinterpretq_s8_s32(x));
                }
        }
    }
}

#include "kernels/arm/gemm_a8_neon.h"

INT4_VARIANT(neondot, .isa = CPU_MASK(NEON) | CPU_MASK(NEONDOT), .fn.gemm = tile_dispatch,
             .rows = TILE_ROWS, .vec_cols = 4);

#endif
