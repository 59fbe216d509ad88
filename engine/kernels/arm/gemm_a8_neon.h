/* kernels/arm/gemm_a8_neon.h - quantised weights times activations of 8 bits, written once
 * around the products of integers.
 *
 * One panel, as four quarters of 4 columns. An including file defines TYPE(x), see
 * codes_neon.h, and TILE_DOTS, the function that adds up the products: dots_sdot, or dots_smmla of
 * dots_neoni8mm.h. */
#ifndef KERNELS_ARM_GEMM_A8_NEON_H
#define KERNELS_ARM_GEMM_A8_NEON_H

#include "kernels/arm/dots_neondot.h"

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
    const float *scaled_sum = (const float *)(a + KERN_A_I8_SUM * mr);

#pragma GCC unroll 2
    for (int h = 0; h < TYPE(HALVES); h++) {
        int32x4_t dot[4][TILE_MR_MAX];

        TILE_DOTS(dot, a, s, h, mr);
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            if (mr > TILE_KEPT)
                sums_read(sum[q], t, q, mr);
            tile_add(sum[q], dot[q], factor, scales(b, s, h, q), mr);
            if (TYPE(MIN)) {
                float32x4_t min = mins(b, s, q);

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
