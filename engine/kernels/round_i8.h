/* kernels/round_i8.h - floats as integers of 8 bits, the same on every processor: the files that
 * include it are compiled without contraction. */
#ifndef KERNELS_ROUND_I8_H
#define KERNELS_ROUND_I8_H

#include <stdint.h>
#include <string.h>

#include "kernels/panel.h"

/* 128-bit vectors are what every target of ours has without further flags. */
typedef float kern_v4f __attribute__((vector_size(16)));
typedef int32_t kern_v4i __attribute__((vector_size(16)));
typedef int16_t kern_v8s __attribute__((vector_size(16)));
typedef int8_t kern_v16c __attribute__((vector_size(16)));

static inline kern_v4i kern_max4(kern_v4i a, kern_v4i b)
{
    kern_v4i first = a > b;

    return (a & first) | (b & ~first);
}

/* The largest magnitude of n numbers, a multiple of 8; infinite or NaN where there is such a
 * number: as integers the bits of magnitudes are in the same order, NaN last. */
static inline float kern_largest(const float *x, int64_t n)
{
    kern_v4i most = {0}, other = {0};
    float out;

#pragma GCC unroll 4
    for (int64_t at = 0; at < n; at += 8, x += 8) {
        kern_v4i bits[2];

        memcpy(bits, x, sizeof(bits));
        most = kern_max4(bits[0] & 0x7fffffff, most);
        other = kern_max4(bits[1] & 0x7fffffff, other);
    }
    most = kern_max4(most, other);
    most = kern_max4(most, __builtin_shufflevector(most, most, 2, 3, 0, 1));
    most = kern_max4(most, __builtin_shufflevector(most, most, 1, 0, 3, 2));
    memcpy(&out, &most, sizeof(out));
    return out;
}

/* Four times x * per_step, rounded to nearest even; those products are from -127 to 127. Adding
 * 1.5 * 2^23 to a small number rounds it to an integer, which the lowest bits of the sum then
 * hold. */
static inline kern_v4i kern_round4(const float *x, float per_step)
{
    kern_v4f v;
    kern_v4i q;

    memcpy(&v, x, sizeof(v));
    v = v * per_step + 0x1.8p23f;
    memcpy(&q, &v, sizeof(q));
    return q - 0x4b400000;
}

/* 16 numbers that fit a byte, as bytes. */
static inline void kern_store16(int8_t *to, const kern_v4i x[4])
{
    kern_v8s low = __builtin_shufflevector((kern_v8s)x[0], (kern_v8s)x[1], 0, 2, 4, 6, 8,
                                           10, 12, 14);
    kern_v8s high = __builtin_shufflevector((kern_v8s)x[2], (kern_v8s)x[3], 0, 2, 4, 6, 8,
                                            10, 12, 14);
    kern_v16c code =
        __builtin_shufflevector((kern_v16c)low, (kern_v16c)high, 0, 2, 4, 6, 8, 10, 12,
                                14, 16, 18, 20, 22, 24, 26, 28, 30);

    memcpy(to, &code, sizeof(code));
}

#endif
