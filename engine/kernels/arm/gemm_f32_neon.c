#include "kernels/kern.h"

#include "cpu/cpu.h"

#include <arm_neon.h>

#include "kernels/tile_set.h"

#define TILE_MR_MAX 6
#define TILE_ROWS                                                                        \
    {                                                                                    \
        6, 2, 1                                                                          \
    }
#define TILE_SET(X) TILE_UP_6(X, 1) TILE_UP_2(X, 2) TILE_UP_1(X, 3)
#define TILE_VECS   12 /* four to a panel */

/* In place: left to itself the compiler loads the next rows early and spills sums. */
#define TILE_FMA(c, x, b) __asm__("fmla %0.4s, %2.4s, %1.s[0]" : "+w"(c) : "w"(x), "w"(b))

/* mr rows x np panels: four vectors of sums to each, beside a row of B and one of A in the
 * 32 registers. */
TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const float *a = t->a;
    const char *unit = t->b;
    float32x4_t sum[TILE_MR_MAX][TILE_VECS];

#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 12
        for (int j = 0; j < 4 * np; j++)
            sum[i][j] =
                t->accumulate ? vld1q_f32(t->c + i * t->ldc + 4 * j) : vdupq_n_f32(0);
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t rows = left < t->k_unit ? left : t->k_unit;
        const char *b = unit;

        for (int64_t k = 0; k < rows; k++, a += mr, b += KERN_PANEL * sizeof(float)) {
            float32x4_t col[TILE_VECS];

#pragma GCC unroll 12
            for (int j = 0; j < 4 * np; j++)
                col[j] =
                    vld1q_f32((const float *)(b + j / 4 * t->b_panel_bytes) + j % 4 * 4);
#pragma GCC unroll 6
            for (int i = 0; i < mr; i++)
#pragma GCC unroll 12
                for (int j = 0; j < 4 * np; j++)
                    TILE_FMA(sum[i][j], a[i], col[j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 12
        for (int j = 0; j < 4 * np; j++)
            vst1q_f32(t->c + i * t->ldc + 4 * j, sum[i][j]);
}

TILE_DISPATCH

const struct kern_variant kern_gemm_f32_neon = {
    .name = "neon",
    .op = KERN_GEMM_F32,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
