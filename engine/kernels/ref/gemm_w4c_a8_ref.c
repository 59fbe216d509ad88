/* Products of 8 bits where the weights of a column share their scale (kernels/panel.h): sums of
 * integers over all rows of a block. */
#include <math.h>

#include "kernels/panel.h"

/* Row i of A, n sub-blocks of rows from the words `a` on, times the block at b. */
static void row(const struct kern_gemm_tile *t, float *c, const int32_t *a, int i,
                const uint8_t *b, int64_t n)
{
    const struct kern_form *f = kern_form(KERN_W4C);
    const int64_t step = KERN_A_I8_WORDS * t->mr; /* words of 32 rows of K */
    int32_t sum[KERN_PANEL] = {0}, a_sum;
    float scale, scaled_sum;

    for (int64_t s = 0; s < n; s++) {
        const uint8_t *sub = b + f->head + s * f->sub;

        for (int k = 0; k < KERN_SUB; k++) {
            int32_t word = a[s * step + k / 4 * t->mr + i];
            int8_t x[4];

            memcpy(x, &word, 4);
            for (int col = 0; col < KERN_PANEL; col++)
                sum[col] += kern_form_code(f, sub, k, col) * x[k % 4];
        }
    }
    memcpy(&scale, &a[KERN_A_I8_SCALE * t->mr + i], 4);
    a_sum = a[(n - 1) * step + (KERN_A_I8_SUM + 1) * t->mr + i] -
            a[KERN_A_I8_SUM * t->mr + i];
    scaled_sum = scale * (float)a_sum;
    for (int col = 0; col < KERN_PANEL; col++) {
        c[col] = fmaf((float)sum[col], kern_form_f16(b + 2 * col) * scale, c[col]);
        c[col] = fmaf(-kern_form_f16(b + 2 * KERN_PANEL + 2 * col), scaled_sum, c[col]);
    }
}

static void gemm(const struct kern_gemm_tile *t)
{
    for (int i = 0; i < t->mr && !t->accumulate; i++)
        memset(t->c + i * t->ldc, 0, (size_t)t->np * KERN_PANEL * sizeof(float));
    for (int p = 0; p < t->np; p++) {
        const uint8_t *b = (const uint8_t *)t->b + (size_t)p * t->b_panel_bytes;
        const int32_t *a = t->a;

        for (int64_t left = t->k; left > 0; left -= t->k_unit, b += t->b_unit_bytes) {
            int64_t n = (left < t->k_unit ? left : t->k_unit) / KERN_SUB;

            for (int i = 0; i < t->mr; i++)
                row(t, t->c + i * t->ldc + p * KERN_PANEL, a, i, b, n);
            a += n * KERN_A_I8_WORDS * t->mr;
        }
    }
}

const struct kern_variant kern_gemm_w4c_a8_ref = {
    .name = "ref-a8",
    .op = KERN_GEMM_W4C,
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = gemm,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_A8_ROW,
    .a_format = KERN_A_I8,
};
