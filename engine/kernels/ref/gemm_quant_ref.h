/* kernels/ref/gemm_quant_ref.h - the GEMM contract of kern.h for quantised weights, with f32
 * activations and with activations of 8 bits as kernels/panel.h defines them.
 *
 * An including file is compiled for a type, QUANT (kernels/panel.h). */
#ifndef KERNELS_GEMM_QUANT_REF_H
#define KERNELS_GEMM_QUANT_REF_H

#include <math.h>

#include "kernels/panel.h"

#define TYPE KERN_QUANT_ENUM

/* Rows a of A, mr of them, times the sub-block at s of the block at b, added to c. */
typedef void (*sub_fn)(const struct kern_gemm_tile *t, float *c, const char *a,
                       const uint8_t *b, const uint8_t *s);

static inline void sub_exact(const struct kern_gemm_tile *t, float *c, const char *a,
                             const uint8_t *b, const uint8_t *s)
{
    const struct kern_form *f = kern_form(TYPE);
    float w[KERN_SUB][KERN_PANEL];

    for (int k = 0; k < KERN_SUB; k++)
        for (int n = 0; n < KERN_PANEL; n++)
            w[k][n] = kern_form_weight(f, b, s, k, n);
    for (int i = 0; i < t->mr; i++, c += t->ldc) {
        const float *x = (const float *)a + i;

        for (int k = 0; k < KERN_SUB; k++)
            for (int n = 0; n < KERN_PANEL; n++)
                c[n] += x[k * t->mr] * w[k][n];
    }
}

/* From one word of row i to the next it is mr words. */
static inline void row_a8(float *c, const char *a, int mr, int i,
                          int w[KERN_SUB][KERN_PANEL], const uint8_t *b, const uint8_t *s)
{
    const struct kern_form *f = kern_form(TYPE);
    const int rows = KERN_SUB / f->halves; /* that share a scale */
    const char *word = a + 4 * i;
    float scale;

    memcpy(&scale, word + 4 * mr * KERN_A_I8_SCALE, 4);
    for (int h = 0; h < f->halves; h++) {
        const char *of_sum = word + 4 * mr * (KERN_A_I8_SUM + h);
        int32_t start = 0, sum[KERN_PANEL];
        float scaled_sum;

        memcpy(&scaled_sum, of_sum, 4);
        if (!f->min)
            memcpy(&start, of_sum, 4);
        for (int n = 0; n < KERN_PANEL; n++)
            sum[n] = start;
        for (int k = rows * h; k < rows * (h + 1); k++)
            for (int n = 0; n < KERN_PANEL; n++)
                sum[n] += w[k][n] * (int8_t)word[4 * mr * (k / 4) + k % 4];
        for (int n = 0; n < KERN_PANEL; n++)
            c[n] =
                fmaf((float)sum[n], kern_form_scale(f, b, s, rows * h, n) * scale, c[n]);
        for (int n = 0; n < KERN_PANEL && f->min; n++)
            c[n] = fmaf(-kern_form_min(f, b, s, rows * h, n), scaled_sum, c[n]);
    }
}

static inline void sub_a8(const struct kern_gemm_tile *t, float *c, const char *a,
                          const uint8_t *b, const uint8_t *s)
{
    int w[KERN_SUB][KERN_PANEL];

    for (int k = 0; k < KERN_SUB; k++)
        for (int n = 0; n < KERN_PANEL; n++)
            w[k][n] = kern_form_code(kern_form(TYPE), s, k, n);
    for (int i = 0; i < t->mr; i++)
        row_a8(c + i * t->ldc, a, t->mr, i, w, b, s);
}

/* One panel. `words`: 32-bit words of 32 activations. */
static inline void panel(const struct kern_gemm_tile *t, int p, sub_fn sub, int words)
{
    const struct kern_form *f = kern_form(TYPE);
    const uint8_t *unit = (const uint8_t *)t->b + (size_t)p * t->b_panel_bytes;
    const char *a = t->a;

    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        const int64_t rows = left < t->k_unit ? left : t->k_unit;
        const int64_t subs = kern_form_subs(f, rows);
        const uint8_t *b = unit;

        for (int64_t k = 0; k < rows; k += KERN_SUB * subs, b += f->head + subs * f->sub)
            for (int64_t s = 0; s < subs; s++, a += 4 * words * t->mr)
                sub(t, t->c + p * KERN_PANEL, a, b, b + f->head + s * f->sub);
    }
}

static inline void gemm(const struct kern_gemm_tile *t, sub_fn sub, int words)
{
    for (int i = 0; i < t->mr && !t->accumulate; i++)
        memset(t->c + i * t->ldc, 0, (size_t)t->np * KERN_PANEL * sizeof(float));
    for (int p = 0; p < t->np; p++)
        panel(t, p, sub, words);
}

static inline void gemm_exact(const struct kern_gemm_tile *t)
{
    gemm(t, sub_exact, KERN_SUB);
}

static inline void gemm_a8(const struct kern_gemm_tile *t)
{
    gemm(t, sub_a8, KERN_A_I8_WORDS);
}

#endif
