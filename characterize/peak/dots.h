/* characterize/peak/dots.h - the loop of an instruction that multiplies bytes and adds the
 * products to sums of 32 bits. The including file first defines VEC_BYTES (width), N_ACC
 * (independent sums, as in loops.h), DOT (the instruction: %0 are the sums, %1 is both
 * factors), DOT_REGISTER (the constraint of its operands) and DOT_PRODUCTS (how many it
 * adds). */
#ifndef CHARACTERIZE_PEAK_DOTS_H
#define CHARACTERIZE_PEAK_DOTS_H

#include "characterize/peak/peak.h"

typedef int32_t vec_i __attribute__((vector_size(VEC_BYTES)));

/* Ones times ones: each sum grows by the number of its products. */
static double dot_i8(int64_t n_rounds)
{
    vec_i one = {0}, acc[N_ACC] = {{0}};
    double sum = 0;

    one += 0x01010101;
#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        acc[i] += i;
    for (int64_t r = 0; r < n_rounds; r++) {
#pragma GCC unroll 32
        for (int i = 0; i < N_ACC; i++)
            /* not the intrinsic: GCC 12 copies its sums to and fro, and measures that */
            __asm__(DOT : "+" DOT_REGISTER(acc[i]) : DOT_REGISTER(one));
    }
#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        sum += acc[i][0];
    return sum;
}
#define DOT_I8_OPS (2.0 * DOT_PRODUCTS * N_ACC)

#endif
