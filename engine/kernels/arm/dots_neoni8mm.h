/* kernels/arm/dots_neoni8mm.h - sums of products by SMMLA, which multiplies eight codes of each
 * of 2 columns with eight activations of each of 2 rows. Its operands are two vectors of
 * SDOT's, interleaved.   Paper: MNN-LLM. */
#ifndef KERNELS_ARM_DOTS_NEONI8MM_H
#define KERNELS_ARM_DOTS_NEONI8MM_H

#include "kernels/arm/dots_neondot.h"

/* Words j and j + 1 of rows i and i + 1, or of row i and zeros where it is the last. */
TILE_INLINE int8x16_t two_rows(const int32_t *a, const int j, const int i, const int mr)
{
    int32x2_t x = vdup_n_s32(0), y = vdup_n_s32(0);

    if (i + 1 < mr) {
        x = vld1_s32(&a[j * mr + i]);
        y = vld1_s32(&a[(j + 1) * mr + i]);
    } else {
        x = vld1_lane_s32(&a[j * mr + i], x, 0);
        y = vld1_lane_s32(&a[(j + 1) * mr + i], y, 0);
    }
    return vreinterpretq_s8_s32(vcombine_s32(vzip1_s32(x, y), vzip2_s32(x, y)));
}

/* The sums of columns 2 c, 2 c + 1 of rows 2 i, 2 i + 1. */
#define PAIR(sums, c, i) sums[(c) / 2][(c) % 2 * (TILE_MR_MAX / 2) + (i)]

TILE_INLINE void smmla_start(int32x4_t sums[4][TILE_MR_MAX], const int32_t *a,
                             const int h, const int mr)
{
#pragma GCC unroll 3
    for (int i = 0; i < mr; i += 2) {
        int32x2_t low = vdup_n_s32(dot_start(a, h, i, mr));
        int32x2_t high = i + 1 < mr ? vdup_n_s32(dot_start(a, h, i + 1, mr)) : low;

#pragma GCC unroll 8
        for (int c = 0; c < 8; c++)
            PAIR(sums, c, i / 2) = vcombine_s32(low, high);
    }
}

TILE_INLINE void smmla_add(int32x4_t sums[4][TILE_MR_MAX], const int32_t *a,
                           const uint8_t *s, const int h, const int mr)
{
    const int n = 8 / TYPE(HALVES);

#pragma GCC unroll 4
    for (int j = n * h; j < n * (h + 1); j += 2) {
        int8x16_t x[TILE_MR_MAX / 2];

#pragma GCC unroll 3
        for (int i = 0; i < mr; i += 2)
            x[i / 2] = two_rows(a, j, i, mr);
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            int32x4_t first = vreinterpretq_s32_s8(signed_codes(s, j, q));
            int32x4_t second = vreinterpretq_s32_s8(signed_codes(s, j + 1, q));
            int8x16_t w0 = vreinterpretq_s8_s32(vzip1q_s32(first, second));
            int8x16_t w1 = vreinterpretq_s8_s32(vzip2q_s32(first, second));

#pragma GCC unroll 3
            for (int i = 0; i < (mr + 1) / 2; i++) {
                PAIR(sums, 2 * q, i) = vmmlaq_s32(PAIR(sums, 2 * q, i), x[i], w0);
                PAIR(sums, 2 * q + 1, i) = vmmlaq_s32(PAIR(sums, 2 * q + 1, i), x[i], w1);
            }
        }
    }
}

TILE_INLINE void smmla_end(int32x4_t dot[4][TILE_MR_MAX], int32x4_t sums[4][TILE_MR_MAX],
                           const int mr)
{
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++) {
            int64x2_t left = vreinterpretq_s64_s32(PAIR(sums, 2 * q, i / 2));
            int64x2_t right = vreinterpretq_s64_s32(PAIR(sums, 2 * q + 1, i / 2));

            dot[q][i] = vreinterpretq_s32_s64(i % 2 ? vzip2q_s64(left, right)
                                                    : vzip1q_s64(left, right));
        }
    }
}

#endif
