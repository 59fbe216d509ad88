/* experiments/study/int4/int4_ref.h - the specification of int4.h in plain C.
 *
 * An including file defines INT4_SIGNED and INT4_FORM. */
#ifndef STUDY_INT4_REF_H
#define STUDY_INT4_REF_H

#include "experiments/study/int4/int4.h"

#define QUANT Q4_0
#include "kernels/ref/gemm_quant_ref.h"

/* Row i times codes w that are signed already. */
static inline void row_signed(float *c, const char *a, int mr, int i,
                              int w[KERN_SUB][KERN_PANEL], const uint8_t *b)
{
    const char *word = a + 4 * i;
    float scale;

    memcpy(&scale, word + 4 * mr * KERN_A_I8_SCALE, 4);
    for (int n = 0; n < KERN_PANEL; n++) {
        int32_t sum = 0;

        for (int k = 0; k < KERN_SUB; k++)
            sum += w[k][n] * (int8_t)word[4 * mr * (k / 4) + k % 4];
        c[n] = fmaf((float)sum, kern_form_f16(b + 2 * n) * scale, c[n]);
    }
}

static inline void sub_straight(const struct kern_gemm_tile *t, float *c, const char *a,
                                const uint8_t *b, const uint8_t *s)
{
    int w[KERN_SUB][KERN_PANEL];

    for (int k = 0; k < KERN_SUB; k++)
        for (int n = 0; n < KERN_PANEL; n++) {
            int high, at = study_int4_byte(k, n, &high);

            w[k][n] = (s[at] >> 4 * high & 15) - (INT4_SIGNED ? KERN_Q4_0_ZERO : 0);
        }
    for (int i = 0; i < t->mr; i++, c += t->ldc) {
        if (INT4_SIGNED)
            row_signed(c, a, t->mr, i, w, b);
        else
            row_a8(c, a, t->mr, i, w, b, s);
    }
}

static void gemm_straight(const struct kern_gemm_tile *t)
{
    gemm(t, sub_straight, KERN_A_I8_WORDS);
}

INT4_VARIANT(ref, .fn.gemm = gemm_straight, .rows = {4, 4}, .vec_cols = 1);

#endif
