/* kernels/arm/dots_neondot.h - sums of products by SDOT, which multiplies four codes of each
 * of 4 columns with four activations of a row.   Paper: MNN-LLM. */
#ifndef KERNELS_ARM_DOTS_NEONDOT_H
#define KERNELS_ARM_DOTS_NEONDOT_H

#define TILE_MR_MAX 4
#define TILE_ROWS                                                                        \
    {                                                                                    \
        4                                                                                \
    }
#define TILE_SET(X)  TILE_UP_4(X, 1)
#define TILE_KEPT    2
#define TILE_A_WORDS KERN_A_I8_WORDS

#include "kernels/arm/codes_neon.h"

/* The start value of the sums of a row: -zero sum(a) (kernels/panel.h), unless signed_codes() has
 * no zero. */
TILE_INLINE int32_t dot_start(const int32_t *a, const int h, const int i, const int mr)
{
    return TYPE(MIN) || TYPE(WIDTH) == 8 ? 0 : a[(KERN_A_I8_SUM + h) * mr + i];
}

/* Sums of products for each quarter and row, begun for half h (of TYPE(HALVES)) of a sub-block, */
TILE_INLINE void sdot_start(int32x4_t sums[4][TILE_MR_MAX], const int32_t *a, const int h,
                            const int mr)
{
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++)
            sums[q][i] = vdupq_n_s32(dot_start(a, h, i, mr));
}

/* added to with the codes of half h of the sub-block at s, */
TILE_INLINE void sdot_add(int32x4_t sums[4][TILE_MR_MAX], const int32_t *a,
                          const uint8_t *s, const int h, const int mr)
{
    const int n = 8 / TYPE(HALVES);

#pragma GCC unroll 8
    for (int j = n * h; j < n * (h + 1); j++) {
        int8x16_t w[4];

#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            w[q] = signed_codes(s, j, q);
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++) {
            int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(a[j * mr + i]));

#pragma GCC unroll 4
            for (int q = 0; q < 4; q++)
                sums[q][i] = vdotq_s32(sums[q][i], w[q], x);
        }
    }
}

/* and in the end ordered by columns, which they are. */
TILE_INLINE void sdot_end(int32x4_t dot[4][TILE_MR_MAX], int32x4_t sums[4][TILE_MR_MAX],
                          const int mr)
{
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++)
            dot[q][i] = sums[q][i];
}

#endif
