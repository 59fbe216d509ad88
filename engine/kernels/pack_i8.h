/* kernels/pack_i8.h - activations in 8 bits: KERN_A_I8 of kern.h.
 *
 * Each 32 activations along K become integers from -127 to 127 and a scale: the nearest integers,
 * and the even one of two. The scale is a 127th of the largest magnitude. (A power of two, as in
 * MXINT8 of OCP Microscaling Formats, would spare the AVX-512 kernels a multiplication in ten, but
 * make errors 1.5 times as large on average.) All 32 are zeros where that magnitude is below
 * KERN_A_I8_MIN. The scale is NaN where any of them is not finite, and then so is their row of the
 * product. For KERN_W4C all of a row have one scale.
 * Paper: MNN-LLM (activations, W4A8). */
#ifndef KERNELS_PACK_I8_H
#define KERNELS_PACK_I8_H

#include "kernels/kern.h"

#define KERN_A_I8_MIN 0x1p-100f

/* 32 activations of one row. */
struct kern_i8_group {
    int8_t code[32];
    float scale;
    int32_t sum[2]; /* of the codes of each 16 */
};

/* As kern_a_pack(), for a variant of KERN_A_I8 or KERN_A_I8_ROWS. k is a multiple of the block of
 * the weights' type. */
void kern_a_pack_i8(const struct kern_variant *v, void *dst, const float *x, int64_t ldx,
                    int64_t mr, int64_t k);

#endif
