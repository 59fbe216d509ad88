/* tests/support/naive_quant.h - blocks of quantised weights, read as slowly and as literally
 * as their definition allows, in double: what the project's own readers are compared with.
 * Every bit of a weight is fetched by its number. */
#ifndef TESTS_SUPPORT_NAIVE_QUANT_H
#define TESTS_SUPPORT_NAIVE_QUANT_H

#include <math.h>

#include "kernels/kern.h"
#include "kernels/panel.h"
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

/* Where the f16 scale d of a block is; dmin, where the type has one, is the two bytes behind it. */
static inline int naive_d_at(enum kern_type t)
{
    /* in f32: naive_set_scales() */
    return t == KERN_Q6_K ? 208 : t == KERN_Q3_K ? 108 : t == KERN_Q2_K ? 80 : 0;
}

/* Set d and dmin; MXFP4 takes the power of two next to d. */
static inline void naive_set_scales(enum kern_type t, uint8_t *block, float d, float dmin)
{
    const uint16_t h = kern_f16_of(d), low = kern_f16_of(dmin);
    int e = 0;

    if (t == KERN_W4G128 || t == KERN_W8G128) {
        const float x[2] = {kern_f16_to(h), kern_f16_to(low)};

        memcpy(block, x, t == KERN_W4G128 ? 8 : 4);
        return;
    }
    if (t == KERN_MXFP4) {
        if (d != 0)
            (void)frexpf(d, &e);
        e += 127;
        block[0] = d == 0 || e < 0 ? 0 : e > 254 ? 254 : (uint8_t)e;
        return;
    }
    memcpy(block + naive_d_at(t), &h, 2);
    if (kern_quant_of(t) && kern_form(t)->min)
        memcpy(block + naive_d_at(t) + 2, &low, 2);
}

/* The numbers of IQ4_NL, and those of E2M1. */
static const int naive_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
static const double naive_e2m1[16] = {0, 0.5,  1,  1.5,  2,  3,  4,  6,
                                      0, -0.5, -1, -1.5, -2, -3, -4, -6};

/* Weight i of a block. Not rounded: round it to f32 to get what a reader must give. */
static inline double naive_weight(enum kern_type t, const uint8_t *block, int i)
{
    const double d = naive_f16(block, 0);
    float x[2];
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
    case KERN_Q2_K:
        scale = naive_bits(block, 8 * (i / 16), 4);
        min = naive_bits(block, 8 * (i / 16) + 4, 4);
        q = naive_bits(block, 8 * (16 + i / 128 * 32 + i % 32) + i % 128 / 32 * 2, 2);
        return naive_f16(block, 80) * scale * q - naive_f16(block, 82) * min;
    case KERN_Q3_K:
        q = naive_bits(block, 8 * (32 + i / 128 * 32 + i % 32) + i % 128 / 32 * 2, 2) +
            4 * naive_bits(block, 8 * (i % 32) + i / 32, 1);
        scale = naive_bits(block, 8 * (96 + i / 16 % 8) + (i < 128 ? 0 : 4), 4) +
                16 * naive_bits(block, 8 * (104 + i / 16 % 4) + i / 64 * 2, 2);
        return naive_f16(block, 108) * ((int)scale - 32) * ((int)q - 4);
    case KERN_IQ4_NL:
        q = naive_bits(block, 8 * (2 + i % 16) + (i < 16 ? 0 : 4), 4);
        return d * naive_iq4[q];
    case KERN_IQ4_XS:
        q = naive_bits(block, 8 * (8 + i / 32 * 16 + i % 16) + (i % 32 < 16 ? 0 : 4), 4);
        scale = naive_bits(block, 8 * 4 + i / 32 * 4, 4) +
                16 * naive_bits(block, 8 * 2 + i / 32 * 2, 2);
        return d * ((int)scale - 32) * naive_iq4[q];
    case KERN_W4G128:
        memcpy(x, block, 8);
        q = naive_bits(block, 8 * (8 + i / 32 * 16 + i % 16) + (i % 32 < 16 ? 0 : 4), 4);
        return (double)x[0] * q - (double)x[1];
    case KERN_W8G128:
        memcpy(x, block, 4);
        return (double)x[0] * (int8_t)block[4 + i];
    case KERN_MXFP4:
        q = naive_bits(block, 8 * (1 + i % 16) + (i < 16 ? 0 : 4), 4);
        return ldexp(naive_e2m1[q], (int)naive_bits(block, 0, 8) - 127);
    default:
        return NAN;
    }
}

/* Types whose scales are searched for the least sum of squared errors. */
static inline bool naive_searched(enum kern_type t)
{
    return t == KERN_Q3_K || t == KERN_IQ4_NL || t == KERN_IQ4_XS || t == KERN_MXFP4;
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

    if (naive_searched(s->type)) /* and a step of the smallest scale in f16 */
        return fmaxf(fabsf(lo), fabsf(hi)) * 0.35f + 127 * 32 * 0x1p-24f;
    f->scale(lo, hi, &d, &dmin);
    one_end = unit * (d * (float)f->q_min - dmin);
    other = unit * (d * (float)f->q_max - dmin);
    most = fmaxf(fmaxf(fminf(one_end, other) - lo, hi - fmaxf(one_end, other)),
                 unit * fabsf(d) / 2);
    return most * (1 + 0x1p-15f) + fmaxf(fabsf(lo), fabsf(hi)) * 0x1p-23f;
}

#endif
