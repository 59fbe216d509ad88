/* kernels/ref/gemm_ref.h - the GEMM contract of kern.h, carried out literally.
 *
 * An including file defines WEIGHT, the type stored, and WEIGHT_AT(b, k, c): the number in
 * row k, column c of a unit's panel at b. */
#ifndef KERNELS_GEMM_REF_H
#define KERNELS_GEMM_REF_H

#include "kernels/kern.h"

#include <string.h>

/* One row of A times one panel, added to acc: every lane adds its k products in order. */
static void row_times_panel(float acc[KERN_PANEL], const struct kern_gemm_tile *t,
                            int row, int panel)
{
    const float *a = (const float *)t->a + row;
    const char *unit = (const char *)t->b + (size_t)panel * t->b_panel_bytes;

    for (int64_t k0 = 0; k0 < t->k; k0 += t->k_unit, unit += t->b_unit_bytes) {
        const WEIGHT *b = (const WEIGHT *)unit;
        int64_t n = t->k - k0 < t->k_unit ? t->k - k0 : t->k_unit;

        for (int64_t k = 0; k < n; k++, a += t->mr)
            for (int c = 0; c < KERN_PANEL; c++)
                acc[c] += *a * WEIGHT_AT(b, k, c);
    }
}

static void gemm_ref(const struct kern_gemm_tile *t)
{
    for (int i = 0; i < t->mr; i++) {
        for (int p = 0; p < t->np; p++) {
            float *c = t->c + i * t->ldc + p * KERN_PANEL;

            if (!t->accumulate)
                memset(c, 0, KERN_PANEL * sizeof(*c));
            row_times_panel(c, t, i, p);
        }
    }
}

#endif
