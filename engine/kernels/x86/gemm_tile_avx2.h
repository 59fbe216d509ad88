/* kernels/x86/gemm_tile_avx2.h - the AVX2 micro-kernel, written once: sixteen registers
 * hold mr x np x 2 half panels of sums, two halves of a row of B and a broadcast.
 *
 * An including file defines, as for gemm_tile_avx512.h, TILE_STEP_ROWS, TILE_STEP_BYTES
 * and TILE_LOAD(b, j, h): half h (8 columns) of row j of a step. */
#ifndef KERNELS_GEMM_TILE_AVX2_H
#define KERNELS_GEMM_TILE_AVX2_H

#include <immintrin.h>

#include "kernels/tile_set.h"

#define TILE_MR_MAX 6
#define TILE_ROWS                                                                        \
    {                                                                                    \
        6, 2, 1                                                                          \
    }
#define TILE_SET(X) TILE_UP_6(X, 1) TILE_UP_2(X, 2) TILE_UP_1(X, 3)
/* As in the AVX-512 tile: 1 KiB on, or two units on in a split matrix. */
#define TILE_AHEAD_BYTES 1024
#define TILE_AHEAD_UNITS 2

/* In place, for the reason given in gemm_tile_avx512.h: sixteen registers leave no spare. */
#define TILE_FMA(c, x, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(x), "x"(b))

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    size_t ahead =
        t->k > t->k_unit ? TILE_AHEAD_UNITS * t->b_unit_bytes : TILE_AHEAD_BYTES;
    const char *unit = t->b;
    const float *a = t->a;
    __m256 sum[TILE_MR_MAX][6];

#pragma GCC unroll 6
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 6
        for (int h = 0; h < 2 * np; h++)
            sum[i][h] = t->accumulate ? _mm256_loadu_ps(t->c + i * t->ldc + 8 * h)
                                      : _mm256_setzero_ps();
    }
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t rows = left < t->k_unit ? left : t->k_unit;
        const char *b = unit;

        for (int64_t k = 0; k < rows; k += TILE_STEP_ROWS, b += TILE_STEP_BYTES) {
#pragma GCC unroll 2
            for (int j = 0; j < TILE_STEP_ROWS; j++) {
#pragma GCC unroll 3
                for (int p = 0; p < np; p++) {
                    const char *row = b + p * t->b_panel_bytes;
                    __m256 b0 = TILE_LOAD(row, j, 0), b1 = TILE_LOAD(row, j, 1);

#pragma GCC unroll 6
                    for (int i = 0; i < mr; i++) {
                        __m256 x = _mm256_broadcast_ss(a + j * mr + i);

                        TILE_FMA(sum[i][2 * p], x, b0);
                        TILE_FMA(sum[i][2 * p + 1], x, b1);
                    }
                }
            }
#pragma GCC unroll 3
            for (int p = 0; mr <= 3 && p < np; p++)
                _mm_prefetch(b + p * t->b_panel_bytes + ahead, _MM_HINT_T0);
            a += TILE_STEP_ROWS * mr;
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 6
        for (int h = 0; h < 2 * np; h++)
            _mm256_storeu_ps(t->c + i * t->ldc + 8 * h, sum[i][h]);
    }
}

TILE_DISPATCH

#endif
