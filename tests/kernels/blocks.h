/* tests/kernels/blocks.h - blocks of quantised weights, as files hold them: random ones, and
 * their values by the definition of kernels/quant.h. */
#ifndef TESTS_KERNELS_BLOCKS_H
#define TESTS_KERNELS_BLOCKS_H

#include "kernels/pack_i8.h"
#include "kernels/panel.h"
#include "kernels/quant.h"
#include "tests/kernels/check.h"
#include "tests/support/naive_quant.h"

static inline float block_random_scale(struct rng *r, enum fill f)
{
    double x = 0.1 * rng_normal(r);

    if (f == FILL_HUGE)
        x *= 5000;
    else if (f == FILL_TINY)
        x = ldexp((double)rng_range(r, -3, 3), -24); /* the smallest halves */
    else if (f == FILL_ZERO)
        x = x < 0 ? -0.0 : 0.0;
    else if (f == FILL_MIXED)
        x = ldexp(x, (int)rng_below(r, 25) - 12);
    return (float)x;
}

/* Rows of n weights, whole blocks, at dst: random bytes with scales of the size that f asks for. */
static inline void blocks_random(struct rng *r, enum fill f, enum kern_type t, void *dst,
                                 int64_t rows, int64_t n)
{
    const size_t bytes = kern_type_bytes(t);
    uint8_t *p = dst;
    float d = 0, dmin = 0;

    for (int64_t i = 0; i < rows * n; i += kern_type_block(t), p += bytes) {
        for (size_t j = 0; j < bytes; j++)
            p[j] = (uint8_t)rng_u64(r);
        if (i % n == 0 || t != KERN_W4C) {
            d = block_random_scale(r, f);
            dmin = block_random_scale(r, f);
        }
        naive_set_scales(t, p, d, dmin);
    }
}

/* The values of n weights, and the sizes of the terms that each is the difference of. */
static inline void blocks_values(enum kern_type t, const void *src, int64_t n,
                                 float *value, float *terms)
{
    const struct kern_quant *f = kern_quant_of(t);
    const int weights = kern_type_block(t);
    const uint8_t *p = src;
    struct kern_quant_block b;

    for (int64_t at = 0; at < n; at += weights, p += kern_type_bytes(t)) {
        kern_quant_decode(f, &b, p);
        kern_quant_to_f32(f, value + at, p, weights);
        for (int i = 0; i < weights; i++)
            terms[at + i] = fabsf(b.d * b.scale[i / f->sub] * b.q[i]) +
                            fabsf(b.dmin * b.min[i / f->sub]);
    }
}

/* Weights near w[256] in a block of Q2_K, Q4_K, Q5_K or Q6_K, whose sub-blocks all have the largest
 * scale. */
static inline void block_near(enum kern_type t, uint8_t *p, const float *w)
{
    const int top = t == KERN_Q2_K ? 3 : t == KERN_Q4_K ? 15 : 31;
    const int lowest = t == KERN_Q6_K ? -32 : 0, unit = t == KERN_Q2_K ? 15 : 63;
    float lo = 0, hi = 0, step, least;
    int code[256];

    for (int i = 0; i < 256; i++) {
        lo = fminf(lo, w[i]);
        hi = fmaxf(hi, w[i]);
    }
    memset(p, 0, kern_type_bytes(t));
    if (t == KERN_Q6_K) {
        memset(p + 192, 127, 16);
        naive_set_scales(t, p, fmaxf(-lo, hi) / 31 / 127, 0);
        step = kern_form_f16(p + 208) * 127;
        least = 0;
    } else {
        memset(p + (t == KERN_Q2_K ? 0 : 4), 0xff, t == KERN_Q2_K ? 16 : 12); /* `unit` */
        naive_set_scales(t, p, (hi - lo) / (float)(top * unit), -lo / (float)unit);
        step = kern_form_f16(p + naive_d_at(t)) * (float)unit;
        least = kern_form_f16(p + naive_d_at(t) + 2) * (float)unit;
    }
    for (int i = 0; i < 256; i++) {
        int q = step == 0 ? 0 : (int)lrintf((w[i] + least) / step);

        code[i] = (q > top ? top : q < lowest ? lowest : q) - lowest;
    }
    for (int i = 0; i < 256 && t == KERN_Q6_K; i++) {
        int in_half = i % 128;

        p[i / 128 * 64 + in_half % 64] |= (uint8_t)((code[i] & 15) << (in_half / 64 * 4));
        p[128 + i / 128 * 32 + in_half % 32] |=
            (uint8_t)(code[i] >> 4 << (in_half / 32 * 2));
    }
    for (int i = 0; i < 256 && t == KERN_Q2_K; i++)
        p[16 + i / 128 * 32 + i % 32] |= (uint8_t)(code[i] << i % 128 / 32 * 2);
    for (int i = 0; i < 256 && t != KERN_Q6_K && t != KERN_Q2_K; i++) {
        const int codes = t == KERN_Q5_K ? 48 : 16;

        p[codes + i / 64 * 32 + i % 32] |= (uint8_t)((code[i] & 15) << (i / 32 % 2 * 4));
        if (t == KERN_Q5_K)
            p[16 + i % 32] |= (uint8_t)(code[i] >> 4 << (i / 32));
    }
}

/* Weights near w[128] in a block of w4g128 or w8g128. */
static inline void group_near(enum kern_type t, uint8_t *p, const float *w)
{
    const bool four = t == KERN_W4G128;
    float lo = 0, hi = 0, x[2];

    for (int i = 0; i < 128; i++) {
        lo = fminf(lo, w[i]);
        hi = fmaxf(hi, w[i]);
    }
    memset(p, 0, kern_type_bytes(t));
    naive_set_scales(t, p, four ? (hi - lo) / 15 : fmaxf(-lo, hi) / 127, -lo);
    memcpy(x, p, four ? 8 : 4);
    for (int i = 0; i < 128; i++) {
        const int q = x[0] == 0 ? 0 : (int)lrintf((w[i] + (four ? x[1] : 0)) / x[0]);

        if (four)
            p[8 + i / 32 * 16 + i % 16] |= (uint8_t)((q < 0    ? 0
                                                      : q > 15 ? 15
                                                               : q)
                                                     << (i % 32 < 16 ? 0 : 4));
        else
            p[4 + i] = (uint8_t)(q < -127 ? -127 : q > 127 ? 127 : q);
    }
}

/* A row of n weights near w, as blocks at dst. */
static inline void blocks_near(enum kern_type t, void *dst, const float *w, int64_t n)
{
    const struct kern_quant *f = kern_quant_of(t == KERN_W4C ? KERN_Q4_1 : t);
    const int weights = kern_type_block(t), together = t == KERN_W4C ? (int)n : weights;
    uint8_t *p = dst;
    float d = 0, dmin = 0;

    for (int64_t at = 0; at < n; at += weights, p += kern_type_bytes(t)) {
        float lo = 0, hi = 0;

        if (t == KERN_W4G128 || t == KERN_W8G128) {
            group_near(t, p, w + at);
            continue;
        }
        if (!f->encode) {
            block_near(t, p, w + at);
            continue;
        }
        for (int i = 0; i < together && at % together == 0; i++) {
            lo = fminf(lo, w[at + i]);
            hi = fmaxf(hi, w[at + i]);
        }
        if (at % together == 0)
            f->scale(lo, hi, &d, &dmin);
        f->encode(p, w + at, d, dmin);
    }
}

#endif
