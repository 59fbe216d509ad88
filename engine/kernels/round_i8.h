/* kernels/round_i8.h - thirty-two floats as integers of 8 bits, the same on every processor: the
 * files that include it are compiled without contraction. */
#ifndef KERNELS_ROUND_I8_H
#define KERNELS_ROUND_I8_H

#include <stdint.h>
#include <string.h>

#include "kernels/panel.h"

/* The bits of the largest magnitude; of an infinite one or NaN where there is such a number: as
 * integers the bits of magnitudes are in the same order, NaN last. */
static inline int32_t kern_largest_bits(const float *x)
{
    int32_t bits[KERN_SUB], most = 0;

    memcpy(bits, x, sizeof(bits));
    for (int i = 0; i < KERN_SUB; i++) {
        bits[i] &= 0x7fffffff;
        most = bits[i] > most ? bits[i] : most;
    }
    return most;
}

/* q = x * per_step, rounded to nearest even; those products are from -127 to 127. Adding 1.5 *
 * 2^23 to a small number rounds it to an integer, which the lowest bits of the sum then hold. */
static inline void kern_round_i8(int32_t *q, const float *x, float per_step)
{
    for (int i = 0; i < KERN_SUB; i++) {
        float sum = x[i] * per_step + 0x1.8p23f;

        memcpy(&q[i], &sum, sizeof(sum));
        q[i] -= 0x4b400000;
    }
}

#endif
