/* kernels/arm/codes_neon.h - codes and scales of quantised weights (kernels/panel.h) in
 * vectors of 4 columns: quarter 0 to 3 of a panel.
 *
 * An including file is compiled for a type, QUANT (kernels/panel.h). */
#ifndef KERNELS_ARM_CODES_NEON_H
#define KERNELS_ARM_CODES_NEON_H

#include <arm_neon.h>

#include "kernels/panel.h"
#include "kernels/tile_set.h"

#define TYPE(x) KERN_QUANT(x)

/* The codes of rows 4 j to 4 j + 3 of the sub-block at s, a byte each, four to a column. */
TILE_INLINE uint8x16_t codes(const uint8_t *s, const int j, const int quarter)
{
    uint8x16_t low, high;

    /* Load again, and not before what comes before is done: registers are scarce. */
    __asm__ volatile("" : "+r"(s)::"memory");
    s += 16 * quarter;
    if (TYPE(BITS) == 8)
        return vld1q_u8(s + 64 * j);
    if (TYPE(BITS) < 4) {
        low = vandq_u8(vld1q_u8(s + 64 * (j / 4)) >> (2 * (j % 4)), vdupq_n_u8(3));
        if (TYPE(BITS) == 2)
            return low;
        high = vld1q_u8(s + 128);
        high = j < 2 ? high << (2 - j) : high >> (j - 2);
        return vorrq_u8(low, vandq_u8(high, vdupq_n_u8(4)));
    }
    low = vld1q_u8(s + 64 * (j % 4));
    low = j < 4 ? vandq_u8(low, vdupq_n_u8(15)) : vshrq_n_u8(low, 4);
    if (TYPE(BITS) == 5) {
        high = vld1q_u8(s + 256);
        high = j < 4 ? high << (4 - j) : high >> (j - 4);
        low = vorrq_u8(low, vandq_u8(high, vdupq_n_u8(16)));
    } else if (TYPE(BITS) == 6) {
        high = vld1q_u8(s + 256 + 64 * (j / 4));
        high = j % 4 < 2 ? high << (4 - 2 * (j % 4)) : high >> (2 * (j % 4) - 4);
        low = vorrq_u8(low, vandq_u8(high, vdupq_n_u8(48)));
    }
    return TYPE(BOOK) == KERN_BOOK_NONE
               ? low
               : vqtbl1q_u8(vld1q_u8(kern_books[TYPE(BOOK)]), low);
}

/* The same, as signed bytes: those of 8 bits less their zero. */
TILE_INLINE int8x16_t signed_codes(const uint8_t *s, const int j, const int quarter)
{
    uint8x16_t x = codes(s, j, quarter);

    if (TYPE(WIDTH) == 8)
        x = veorq_u8(x, vdupq_n_u8(128));
    return vreinterpretq_s8_u8(x);
}

TILE_INLINE float32x4_t f16_row(const uint8_t *at, const int quarter)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at + 8 * quarter)));
}

/* The d (which 0) or dmin (1) of the head at b. */
TILE_INLINE float32x4_t head_row(const uint8_t *b, const int which, const int quarter)
{
    const uint8x8_t half = vld1_u8(b + 2 * KERN_PANEL * which + 8 * quarter);

    if (TYPE(WIDE) == 2)
        return vreinterpretq_f32_u8(vld1q_u8(b + 4 * KERN_PANEL * which + 16 * quarter));
    if (TYPE(WIDE))
        return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(half), 16));
    return vcvt_f32_f16(vreinterpret_f16_u8(half));
}

/* Four bytes as floats. */
TILE_INLINE float32x4_t bytes_row(const uint8_t *at, const int quarter,
                                  const bool is_signed)
{
    uint32_t four;
    uint8x8_t bytes;

    memcpy(&four, at + 4 * quarter, 4);
    bytes = vreinterpret_u8_u32(vdup_n_u32(four));
    if (is_signed)
        return vcvtq_f32_s32(
            vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes)))));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}

/* The scales of rows 16 h to 16 h + 15 of the sub-block at s of the block at b. */
TILE_INLINE float32x4_t scales(const uint8_t *b, const uint8_t *s, const int h,
                               const int quarter)
{
    float32x4_t d = head_row(b, 0, quarter);

    if (TYPE(SCALES) == 0)
        return d;
    s += TYPE(SCALES) + KERN_PANEL * (TYPE(HALVES) == 2 ? h : 0);
    return vmulq_f32(d, bytes_row(s, quarter, !TYPE(MIN)));
}

/* The numbers that are subtracted from these rows, for types with a min. */
TILE_INLINE float32x4_t mins(const uint8_t *b, const uint8_t *s, const int h,
                             const int quarter)
{
    const int half = TYPE(HALVES) == 2 ? h : 0;
    float32x4_t d = head_row(b, 1, quarter);

    if (TYPE(SCALES) == 0)
        return d;
    s += TYPE(SCALES) + KERN_PANEL * (TYPE(HALVES) + half);
    return vmulq_f32(d, bytes_row(s, quarter, false));
}

#endif
