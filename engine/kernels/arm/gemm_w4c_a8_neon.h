/* kernels/arm/gemm_w4c_a8_neon.h - products of 8 bits where the weights of a column share their
 * scale (kernels/panel.h): only sums of integers in the loop.   Paper: MNN-LLM.
 *
 * One panel, as four quarters of 4 columns. An including file defines TILE_DOTS(step), see
 * gemm_a8_neon.h. */
#ifndef KERNELS_ARM_GEMM_W4C_A8_NEON_H
#define KERNELS_ARM_GEMM_W4C_A8_NEON_H

#include "kernels/arm/dots_neondot.h"

/* A quarter of C from the sums over the block at b. `first` and `last` are the words of its
 * first and last sub-block in A. */
TILE_INLINE void quarter_end(const struct kern_gemm_tile *t,
                             const int32x4_t dot[TILE_MR_MAX], const int32_t *first,
                             const int32_t *last, const uint8_t *b, const int quarter,
                             const int mr)
{
    const float32x4_t d = f16_row(b, quarter), min = f16_row(b + 2 * KERN_PANEL, quarter);

#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
        float scale = ((const float *)first)[KERN_A_I8_SCALE * mr + i];
        int32_t a_sum =
            last[(KERN_A_I8_SUM + 1) * mr + i] - first[KERN_A_I8_SUM * mr + i];
        float *to = t->c + i * t->ldc + 4 * quarter;
        float32x4_t c =
            vfmaq_f32(vld1q_f32(to), vcvtq_f32_s32(dot[i]), vmulq_n_f32(d, scale));

        vst1q_f32(to, vfmsq_n_f32(c, min, scale * (float)a_sum));
    }
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const uint8_t *unit = t->b;
    const int32_t *a = t->a;

    (void)np;
    for (int i = 0; i < mr && !t->accumulate; i++)
        memset(t->c + i * t->ldc, 0, KERN_PANEL * sizeof(float));
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t n = (left < t->k_unit ? left : t->k_unit) / KERN_SUB;
        const uint8_t *s = unit + TYPE(HEAD);
        const int32_t *first = a;
        int32x4_t sums[4][TILE_MR_MAX], dot[4][TILE_MR_MAX];

        TILE_DOTS(start)(sums, a, 0, mr);
        for (; n > 0; n--, s += TYPE(SUB), a += KERN_A_I8_WORDS * mr)
            TILE_DOTS(add)(sums, a, s, 0, mr);
        TILE_DOTS(end)(dot, sums, mr);
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            quarter_end(t, dot[q], first, a - KERN_A_I8_WORDS * mr, unit, q, mr);
    }
}

TILE_DISPATCH

#endif
