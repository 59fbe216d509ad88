/* kernels/arm/gemm_a8_neon.h - quantised weights times activations of 8 bits, written once
 * around the products of integers.
 *
 * One panel, as four quarters of 4 columns. An including file defines TILE_DOTS(step) as the
 * functions that add up the products: sdot_##step, or smmla_##step of dots_neoni8mm.h. */
#ifndef KERNELS_ARM_GEMM_A8_NEON_H
#define KERNELS_ARM_GEMM_A8_NEON_H

#include "kernels/arm/dots_neondot.h"
#include "kernels/arm/quant_run_neon.h"

/* A quarter of C from its sums of integers. */
TILE_INLINE void tile_add(float32x4_t sum[TILE_MR_MAX], const int32x4_t dot[TILE_MR_MAX],
                          const float *factor, float32x4_t scale, const int mr)
{
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
        sum[i] = vfmaq_f32(sum[i], vcvtq_f32_s32(dot[i]), vmulq_n_f32(scale, factor[i]));
}

TILE_INLINE void tile_sub(float32x4_t sum[4][TILE_MR_MAX], const struct kern_gemm_tile *t,
                          const void *block, const uint8_t *b, const uint8_t *s,
                          const int mr)
{
    const int32_t *a = block;
    const float *factor = (const float *)(a + KERN_A_I8_SCALE * mr);

#pragma GCC unroll 2
    for (int h = 0; h < TYPE(HALVES); h++) {
        const float *scaled_sum = (const float *)(a + (KERN_A_I8_SUM + h) * mr);
        int32x4_t sums[4][TILE_MR_MAX], dot[4][TILE_MR_MAX];

        TILE_DOTS(start)(sums, a, h, mr);
        TILE_DOTS(add)(sums, a, s, h, mr);
        TILE_DOTS(end)(dot, sums, mr);
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            if (mr > TILE_KEPT)
                sums_read(sum[q], t, q, mr);
            tile_add(sum[q], dot[q], factor, scales(b, s, h, q), mr);
            if (TYPE(MIN)) {
                float32x4_t min = mins(b, s, h, q);

#pragma GCC unroll 6
                for (int i = 0; i < mr; i++)
                    sum[q][i] = vfmsq_n_f32(sum[q][i], min, scaled_sum[i]);
            }
            if (mr > TILE_KEPT)
                sums_write(sum[q], t, q, mr);
        }
    }
}

TILE_DISPATCH

#endif
