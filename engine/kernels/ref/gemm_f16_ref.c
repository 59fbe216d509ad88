#include "kernels/kern.h"

#include <string.h>

/* The sum of one row of A times one panel: every lane adds its k products in order. */
static void row_times_panel(float acc[KERN_PANEL], const struct kern_gemm_tile *t,
                            int row, int panel)
{
    const float *a = (const float *)t->a + row;
    const char *unit = (const char *)t->b + (size_t)panel * t->b_panel_bytes;

    memset(acc, 0, KERN_PANEL * sizeof(*acc));
    for (int64_t k0 = 0; k0 < t->k; k0 += t->k_unit, unit += t->b_unit_bytes) {
        const uint16_t *b = (const uint16_t *)unit;
        int64_t n = t->k - k0 < t->k_unit ? t->k - k0 : t->k_unit;

        for (int64_t k = 0; k < n; k++, a += t->mr)
            for (int c = 0; c < KERN_PANEL; c++)
                acc[c] += *a * kern_f16_to(b[k * KERN_PANEL + c]);
    }
}

static void gemm_f16_ref(const struct kern_gemm_tile *t)
{
    for (int i = 0; i < t->mr; i++) {
        for (int p = 0; p < t->np; p++) {
            float *c = t->c + i * t->ldc + p * KERN_PANEL;
            float acc[KERN_PANEL];

            row_times_panel(acc, t, i, p);
            for (int j = 0; j < KERN_PANEL; j++)
                c[j] = t->accumulate ? c[j] + acc[j] : acc[j];
        }
    }
}

const struct kern_variant kern_gemm_f16_ref = {
    .name = "ref",
    .op = KERN_GEMM_F16,
    .precision = KERN_EXACT,
    .fn.gemm = gemm_f16_ref,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
