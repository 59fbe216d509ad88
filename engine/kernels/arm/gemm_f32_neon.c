#include "kernels/kern.h"

#include "cpu/cpu.h"

#include <arm_neon.h>

#define TILE_INLINE static inline __attribute__((always_inline))

/* MR rows x one panel: four vectors of sums a row, 24 of the 32 registers at MR = 6. */
TILE_INLINE void tile_panel(const struct kern_gemm_tile *t, int panel, const int MR)
{
    const float *a = t->a;
    const char *unit = (const char *)t->b + (size_t)panel * t->b_panel_bytes;
    float *c = t->c + panel * KERN_PANEL;
    float32x4_t sum[6][4];

#pragma GCC unroll 6
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            sum[i][j] =
                t->accumulate ? vld1q_f32(c + i * t->ldc + 4 * j) : vdupq_n_f32(0);
    for (int64_t k0 = 0; k0 < t->k; k0 += t->k_unit, unit += t->b_unit_bytes) {
        int64_t n = t->k - k0 < t->k_unit ? t->k - k0 : t->k_unit;
        const float *b = (const float *)unit;

        for (int64_t k = 0; k < n; k++, a += MR, b += KERN_PANEL) {
            float32x4_t col[4];

#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                col[j] = vld1q_f32(b + 4 * j);
#pragma GCC unroll 6
            for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++)
                    sum[i][j] = vfmaq_n_f32(sum[i][j], col[j], a[i]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            vst1q_f32(c + i * t->ldc + 4 * j, sum[i][j]);
}

static void gemm_f32_neon(const struct kern_gemm_tile *t)
{
    for (int p = 0; p < t->np; p++) {
        switch (t->mr) {
        case 1:
            tile_panel(t, p, 1);
            break;
        case 2:
            tile_panel(t, p, 2);
            break;
        case 3:
            tile_panel(t, p, 3);
            break;
        case 4:
            tile_panel(t, p, 4);
            break;
        case 5:
            tile_panel(t, p, 5);
            break;
        default:
            tile_panel(t, p, 6);
            break;
        }
    }
}

const struct kern_variant kern_gemm_f32_neon = {
    .name = "neon",
    .op = KERN_GEMM_F32,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .fn.gemm = gemm_f32_neon,
    .mr_max = 6,
    .np_max = 1,
    .a_format = KERN_A_F32,
};
