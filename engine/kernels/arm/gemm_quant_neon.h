/* kernels/arm/gemm_quant_neon.h - quantised weights times f32 activations, written once:
 * codes become f32 weights in a register, exactly, and are multiplied with all rows. Each
 * number of C is one chain of multiply-adds.
 *
 * One panel, as four quarters of 4 columns. */
#ifndef KERNELS_ARM_GEMM_QUANT_NEON_H
#define KERNELS_ARM_GEMM_QUANT_NEON_H

#define TILE_MR_MAX 8
#define TILE_ROWS                                                                        \
    {                                                                                    \
        8                                                                                \
    }
#define TILE_SET(X)  TILE_UP_8(X, 1)
#define TILE_KEPT    4
#define TILE_A_WORDS KERN_SUB

#include "kernels/arm/quant_run_neon.h"

/* In place, for the reason given in gemm_tile_neon.h. */
#define TILE_FMA(c, x, w) __asm__("fmla %0.4s, %2.4s, %1.s[0]" : "+w"(c) : "w"(x), "w"(w))

/* Rows 16 h to 16 h + 15 of the sub-block at s of the block at b. */
TILE_INLINE void tile_half(float32x4_t sum[TILE_MR_MAX], const float *a, const uint8_t *b,
                           const uint8_t *s, const int h, const int quarter, const int mr)
{
    const float32x4_t scale = scales(b, s, h, quarter);
    /* an exact product, or exact with its sign changed */
    const float32x4_t least = TYPE(MIN) ? vnegq_f32(mins(b, s, h, quarter))
                                        : vmulq_n_f32(scale, -(float)TYPE(ZERO));

    __asm__ volatile("" : "+r"(a)::"memory"); /* load again for each quarter */
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        uint32x4_t four = vreinterpretq_u32_u8(codes(s, 4 * h + v, quarter));

#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            uint32x4_t code = vandq_u32(r == 0   ? four
                                        : r == 1 ? vshrq_n_u32(four, 8)
                                        : r == 2 ? vshrq_n_u32(four, 16)
                                                 : vshrq_n_u32(four, 24),
                                        vdupq_n_u32(255));
            float32x4_t w = vfmaq_f32(least, vcvtq_f32_u32(code), scale);

#pragma GCC unroll 8
            for (int i = 0; i < mr; i++)
                TILE_FMA(sum[i], a[(16 * h + 4 * v + r) * mr + i], w);
        }
    }
}

TILE_INLINE void tile_sub(float32x4_t sum[4][TILE_MR_MAX], const struct kern_gemm_tile *t,
                          const void *a, const uint8_t *b, const uint8_t *s, const int mr)
{
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        if (mr > TILE_KEPT)
            sums_read(sum[q], t, q, mr);
        tile_half(sum[q], a, b, s, 0, q, mr);
        tile_half(sum[q], a, b, s, 1, q, mr);
        if (mr > TILE_KEPT)
            sums_write(sum[q], t, q, mr);
    }
}

TILE_DISPATCH

#endif
