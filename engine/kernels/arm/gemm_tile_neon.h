/* kernels/arm/gemm_tile_neon.h - the NEON micro-kernel, written once: 32 registers hold
 * four vectors of sums for each of mr x np, a row of B and one of A.
 *
 * An including file defines, as for gemm_tile_avx512.h, TILE_STEP_ROWS, TILE_STEP_BYTES
 * and TILE_LOAD(b, j, q): quarter q (4 columns) of row j of a step. */
#ifndef KERNELS_GEMM_TILE_NEON_H
#define KERNELS_GEMM_TILE_NEON_H

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

TILE_INLINE void tile_step(float32x4_t sum[TILE_MR_MAX][TILE_VECS], const float *a,
                           const char *b, size_t b_panel_bytes, const int j, const int mr,
                           const int np)
{
    float32x4_t col[TILE_VECS];

#pragma GCC unroll 12
    for (int v = 0; v < 4 * np; v++)
        col[v] = TILE_LOAD(b + v / 4 * b_panel_bytes, j, v % 4);
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 12
        for (int v = 0; v < 4 * np; v++)
            TILE_FMA(sum[i][v], a[j * mr + i], col[v]);
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const float *a = t->a;
    const char *unit = t->b;
    float32x4_t sum[TILE_MR_MAX][TILE_VECS];

#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 12
        for (int v = 0; v < 4 * np; v++)
            sum[i][v] =
                t->accumulate ? vld1q_f32(t->c + i * t->ldc + 4 * v) : vdupq_n_f32(0);
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t rows = left < t->k_unit ? left : t->k_unit;
        const char *b = unit;

        for (int64_t k = 0; k < rows; k += TILE_STEP_ROWS) {
#pragma GCC unroll 2
            for (int j = 0; j < TILE_STEP_ROWS; j++)
                tile_step(sum, a, b, t->b_panel_bytes, j, mr, np);
            a += TILE_STEP_ROWS * mr;
            b += TILE_STEP_BYTES;
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 12
        for (int v = 0; v < 4 * np; v++)
            vst1q_f32(t->c + i * t->ldc + 4 * v, sum[i][v]);
}

TILE_DISPATCH

#endif
