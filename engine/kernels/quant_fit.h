/* kernels/quant_fit.h - how formats with signed scales and few values round: the scale of each
 * sub-block is searched for the least sum of squared errors, then rounded to the integers that
 * the format has, and the values are the nearest with what was rounded.
 *
 * A block is n_subs sub-blocks of n weights, w = d * scale * value; with one sub-block the scale
 * is 1, else an integer of 6 bits, from -32 to 31.   Threads: any. */
#ifndef KERNELS_QUANT_FIT_H
#define KERNELS_QUANT_FIT_H

#include <stdint.h>

#define KERN_FIT_MAX 256

/* The values of IQ4_NL, which kern_books[] has plus 128. */
#define KERN_FIT_IQ4                                                                     \
    {                                                                                    \
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113         \
    }

struct kern_fit_form {
    int n, n_subs;
    int n_values;
    int8_t value[16]; /* ascending; the first has the largest magnitude */
};

struct kern_fit {
    float d; /* as f16 has it */
    int8_t scale[16];
    uint8_t number[KERN_FIT_MAX]; /* of the value of each weight */
};

/* w[n * n_subs] are finite. No weight errs by more than a third of the largest magnitude, or by
 * less than f16 can say. */
void kern_fit_blocks(struct kern_fit *out, const struct kern_fit_form *f, const float *w);

#endif
