/* tests/support/naive_quant.h - blocks of quantised weights, read as slowly and as literally
 * as their definition allows, in double: what the project's own readers are compared with.
 * Every bit of a weight is fetched by its number. */
#ifndef TESTS_SUPPORT_NAIVE_QUANT_H
#define TESTS_SUPPORT_NAIVE_QUANT_H

#include <math.h>

#include "kernels/kern.h"
#include "kernels/quant.h"

/* Bits [at, at + n) of a block, the low end of byte 0 first. */
static inline unsigned naive_bits(const uint8_t *block, int at, int n)
{
    unsigned x = 0;

    for (int i = 0; i < n; i++)
        x |= (unsigned)(block[(at + i) / 8] >> (at + i) % 8 & 1) << i;
    return x;
}

/* The f16 at this byte. */
static inline double naive_f16(const uint8_t *block, int byte)
{
    return (double)kern_f16_to((uint16_t)naive_bits(block, 8 * byte, 16));
}

/* Scale and min of sub-block s, of 6 bits each in the 96 bits behind byte 4. */
static inline void naive_6_bits(const uint8_t *block, int s, unsigned *scale,
                                unsigned *min)
{
    const int at = 8 * 4, low = s % 4;

    if (s < 4) {
        *scale = naive_bits(block, at + 8 * low, 6);
        *min = naive_bits(block, at + 32 + 8 * low, 6);
        return;
    }
    *scale = naive_bits(block, at + 64 + 8 * low, 4) |
             naive_bits(block, at + 8 * low + 6, 2) << 4;
    *min = naive_bits(block, at + 64 + 8 * low + 4, 4) |
           naive_bits(block, at + 32 + 8 * low + 6, 2) << 4;
}

/* Weight i of a block. Not rounded: round it to f32 to get what a reader must give. */
static inline double naive_weight(enum kern_type t, const uint8_t *block, int i)
{
    const double d = naive_f16(block, 0);
    unsigned scale, min, q;
    int byte;

    switch (t) {
    case KERN_Q8_0:
        return d * (int8_t)naive_bits(block, 8 * (2 + i), 8);
    case KERN_Q4_0:
        q = naive_bits(block, 8 * (2 + i % 16) + (i < 16 ? 0 : 4), 4);
        return d * ((int)q - 8);
    case KERN_Q5_0:
        q = naive_bits(block, 8 * (6 + i % 16) + (i < 16 ? 0 : 4), 4) +
            16 * naive_bits(block, 8 * 2 + i, 1);
        return d * ((int)q - 16);
    case KERN_Q5_1:
        q = naive_bits(block, 8 * (8 + i % 16) + (i < 16 ? 0 : 4), 4) +
            16 * naive_bits(block, 8 * 4 + i, 1);
        return d * q + naive_f16(block, 2);
    case KERN_Q4_1:
    case KERN_W4C:
        q = naive_bits(block, 8 * (4 + i % 16) + (i < 16 ? 0 : 4), 4);
        return d * q + naive_f16(block, 2);
    case KERN_Q4_K:
    case KERN_Q5_K:
        naive_6_bits(block, i / 32, &scale, &min);
        byte = (t == KERN_Q4_K ? 16 : 48) + i / 64 * 32 + i % 32;
        q = naive_bits(block, 8 * byte + (i % 64 < 32 ? 0 : 4), 4);
        if (t == KERN_Q5_K)
            q += 16 * naive_bits(block, 8 * (16 + i % 32) + i / 32, 1);
        return d * scale * q - naive_f16(block, 2) * min;
    case KERN_Q6_K:
        byte = i / 128 * 64 + i % 64;
        q = naive_bits(block, 8 * byte + (i % 128 < 64 ? 0 : 4), 4);
        byte = 128 + i / 128 * 32 + i % 32;
        q += 16 * naive_bits(block, 8 * byte + i % 128 / 32 * 2, 2);
        return naive_f16(block, 208) * (int8_t)block[192 + i / 16] * ((int)q - 32);
    default:
        return NAN;
    }
}

/* An upper bound of |w - dequantised w| of weights in [lo, hi] that share their scale: half of
 * the largest step (in Q4_0 and Q5_0 up to the whole of it, at one end), and what rounding
 * in f32 adds. */
static inline float naive_quant_error(const struct kern_quant_scheme *s, float lo,
                                      float hi)
{
    const struct kern_quant *f = kern_quant_of(s->type);
    const float unit = s->type == KERN_Q4_K ? 63 : 1; /* largest scale of a sub-block */
    float d, dmin, one_end, other, most;

    f->scale(lo, hi, &d, &dmin);
    one_end = unit * (d * (float)f->q_min - dmin);
    other = unit * (d * (float)f->q_max - dmin);
    most = fmaxf(fmaxf(fminf(one_end, other) - lo, hi - fmaxf(one_end, other)),
                 unit * fabsf(d) / 2);
    return most * (1 + 0x1p-15f) + fmaxf(fabsf(lo), fabsf(hi)) * 0x1p-23f;
}

#endif
