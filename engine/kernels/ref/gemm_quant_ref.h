/* kernels/ref/gemm_quant_ref.h - the GEMM contract of kern.h for quantised weights, with f32
 * activations and with activations of 8 bits as kernels/panel.h defines them.
 *
 * An including file defines TYPE, the enum kern_type. */
#ifndef KERNELS_GEMM_QUANT_REF_H
#define KERNELS_GEMM_QUANT_REF_H

#include <math.h>

#include "kernels/panel.h"

/* 32 rows of K of row i of A, in the sub-block at s of the block at b, added to acc. */
static inline void row_exact(float acc[KERN_PANEL], const char *a, int mr, int i,
                             const uint8_t *b, const uint8_t *s)
{
    const struct kern_form *f = kern_form(TYPE);
    const float *x = (const float *)a + i;

    for (int k = 0; k < KERN_SUB; k++, x += mr)
        for (int c = 0; c < KERN_PANEL; c++)
            acc[c] += *x * kern_form_weight(f, b, s, k, c);
}

static inline void row_a8(float acc[KERN_PANEL], const char *a, int mr, int i,
                          const uint8_t *b, const uint8_t *s)
{
    const struct kern_form *f = kern_form(TYPE);
    const int rows = KERN_SUB / f->halves; /* that share a scale */
    const char *group = a + 4 * i;         /* words of this row are 4 mr bytes apart */
    float scale, scaled_sum;

    memcpy(&scale, group + 4 * mr * KERN_A_I8_SCALE, 4);
    memcpy(&scaled_sum, group + 4 * mr * KERN_A_I8_SUM, 4);
    for (int c = 0; c < KERN_PANEL; c++) {
        for (int h = 0; h < f->halves; h++) {
            int32_t sum = 0;

            if (!f->min)
                memcpy(&sum, group + 4 * mr * (KERN_A_I8_SUM + h), 4);
            for (int k = rows * h; k < rows * (h + 1); k++)
                sum +=
                    kern_form_code(f, s, k, c) * (int8_t)group[4 * mr * (k / 4) + k % 4];
            acc[c] =
                fmaf((float)sum, kern_form_scale(f, b, s, rows * h, c) * scale, acc[c]);
        }
        if (f->min)
            acc[c] = fmaf(-kern_form_min(f, b, s, c), scaled_sum, acc[c]);
    }
}

/* Bytes of 32 rows of K of a block of A. */
static inline size_t a_bytes(int mr, bool a8)
{
    return (size_t)mr * 4 * (a8 ? KERN_A_I8_WORDS : KERN_SUB);
}

static inline void row_times_panel(float acc[KERN_PANEL], const struct kern_gemm_tile *t,
                                   int row, int panel, bool a8)
{
    const struct kern_form *f = kern_form(TYPE);
    const uint8_t *unit = (const uint8_t *)t->b + (size_t)panel * t->b_panel_bytes;
    const char *a = t->a;

    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t n = (left < t->k_unit ? left : t->k_unit) / (KERN_SUB * f->subs);
        const uint8_t *b = unit;

        for (; n > 0; n--, b += kern_form_bytes(f)) {
            for (int s = 0; s < f->subs; s++, a += a_bytes(t->mr, a8))
                (a8 ? row_a8 : row_exact)(acc, a, t->mr, row, b,
                                          b + f->head + s * f->sub);
        }
    }
}

static inline void gemm(const struct kern_gemm_tile *t, bool a8)
{
    for (int i = 0; i < t->mr; i++) {
        for (int p = 0; p < t->np; p++) {
            float *c = t->c + i * t->ldc + p * KERN_PANEL;

            if (!t->accumulate)
                memset(c, 0, KERN_PANEL * sizeof(*c));
            row_times_panel(c, t, i, p, a8);
        }
    }
}

static inline void gemm_exact(const struct kern_gemm_tile *t)
{
    gemm(t, false);
}

static inline void gemm_a8(const struct kern_gemm_tile *t)
{
    gemm(t, true);
}

#endif
