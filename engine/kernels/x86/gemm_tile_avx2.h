/* kernels/x86/gemm_tile_avx2.h - the AVX2 micro-kernel, written once: sixteen registers
 * hold mr x np x 2 half panels of sums, broadcasts of A and a half panel of B.
 *
 * An including file defines, as for gemm_tile_avx512.h, TILE_SUMS_MIN, TILE_STEP_ROWS,
 * TILE_STEP_BYTES and TILE_LOAD(b, j, h): half h (8 columns) of row j of a step. */
#ifndef KERNELS_GEMM_TILE_AVX2_H
#define KERNELS_GEMM_TILE_AVX2_H

#include <immintrin.h>

#include "kernels/tile_set.h"

#define TILE_MR_MAX 6
#define TILE_ROWS                                                                        \
    {                                                                                    \
        6, 2, 2, 1, 1, 1                                                                 \
    }
#define TILE_SET(X)                                                                      \
    TILE_UP_6(X, 1)                                                                      \
    TILE_UP_2(X, 2) TILE_UP_2(X, 3) TILE_UP_1(X, 4) TILE_UP_1(X, 5) TILE_UP_1(X, 6)
/* Fewer than 8 sums of 8 columns. */
#define TILE_SET_FEW(X) TILE_UP_3(X, 1) TILE_UP_1(X, 2) TILE_UP_1(X, 3)
#define TILE_HALVES     12 /* two to a panel */
#define TILE_SETS_MAX   4

/* The sets of sums that the rows of K take in turn, so that TILE_SUMS_MIN sums hide the
 * latency of the multiply-add. */
#define TILE_SETS(mr, np)                                                                \
    (TILE_SUMS_MIN ? (TILE_SUMS_MIN - 1) / (2 * (mr) * (np)) + 1 : 1)

/* In place, for the reason given in gemm_tile_avx512.h: sixteen registers leave no spare. */
#define TILE_FMA(c, x, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(x), "x"(b))

/* One row of K. A single panel shares its two halves among the rows, which may be six;
 * several panels share the broadcasts of their few rows. */
TILE_INLINE void tile_row(__m256 sum[TILE_MR_MAX][TILE_HALVES], const float *a,
                          const char *b, size_t b_panel_bytes, const int j, const int mr,
                          const int np)
{
    __m256 x[TILE_MR_MAX];

    (void)j; /* of a step of one row */

    if (np == 1) {
        __m256 b0 = TILE_LOAD(b, j, 0), b1 = TILE_LOAD(b, j, 1);

#pragma GCC unroll 6
        for (int i = 0; i < mr; i++) {
            x[0] = _mm256_broadcast_ss(a + i);
            TILE_FMA(sum[i][0], x[0], b0);
            TILE_FMA(sum[i][1], x[0], b1);
        }
        return;
    }
#pragma GCC unroll 2
    for (int i = 0; i < mr; i++)
        x[i] = _mm256_broadcast_ss(a + i);
#pragma GCC unroll 12
    for (int h = 0; h < 2 * np; h++) {
        __m256 col = TILE_LOAD(b + h / 2 * b_panel_bytes, j, h % 2);

#pragma GCC unroll 2
        for (int i = 0; i < mr; i++)
            TILE_FMA(sum[i][h], x[i], col);
    }
}

/* One step of K, whose first row is row `first` of a turn through the sets. */
TILE_INLINE void tile_step(__m256 sum[TILE_SETS_MAX][TILE_MR_MAX][TILE_HALVES],
                           const struct kern_gemm_tile *t, const float *a, const char *b,
                           const char *next, const int first, const int mr, const int np)
{
#pragma GCC unroll 2
    for (int j = 0; j < TILE_STEP_ROWS; j++)
        tile_row(sum[(first + j) % TILE_SETS(mr, np)], a + j * mr, b, t->b_panel_bytes, j,
                 mr, np);
        /* Into the second level: measured on Zen 4, one row from memory is read 10 to 20 %
     * faster than with the first level as the target. */
#pragma GCC unroll 6
    for (int p = 0; p < np; p++)
        _mm_prefetch(next + p * t->b_panel_bytes, _MM_HINT_T1);
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const size_t next_step = (size_t)t->next_step * TILE_STEP_BYTES / 64;
    const int sets = TILE_SETS(mr, np);
    const int turn = sets > TILE_STEP_ROWS ? sets : TILE_STEP_ROWS; /* rows of K */
    const char *unit = t->b, *next_unit = t->next;
    const float *a = t->a;
    __m256 sum[TILE_SETS_MAX][TILE_MR_MAX][TILE_HALVES];

#pragma GCC unroll 6
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 12
        for (int h = 0; h < 2 * np; h++) {
            sum[0][i][h] = t->accumulate ? _mm256_loadu_ps(t->c + i * t->ldc + 8 * h)
                                         : _mm256_setzero_ps();
#pragma GCC unroll 3
            for (int s = 1; s < sets; s++)
                sum[s][i][h] = _mm256_setzero_ps();
        }
    }
    for (int64_t left = t->k; left > 0; left -= t->k_unit) {
        int64_t rows = left < t->k_unit ? left : t->k_unit, k = 0;
        const char *b = unit, *next = next_unit;

        for (; k + turn <= rows; k += turn) {
#pragma GCC unroll 4
            for (int r = 0; r < turn; r += TILE_STEP_ROWS) {
                tile_step(sum, t, a, b, next, r, mr, np);
                a += TILE_STEP_ROWS * mr;
                b += TILE_STEP_BYTES;
                next += next_step;
            }
        }
        for (; turn > TILE_STEP_ROWS && k < rows; k += TILE_STEP_ROWS) {
            tile_step(sum, t, a, b, next, 0, mr, np);
            a += TILE_STEP_ROWS * mr;
            b += TILE_STEP_BYTES;
            next += next_step;
        }
        unit += t->b_unit_bytes;
        next_unit += t->b_unit_bytes;
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 12
        for (int h = 0; h < 2 * np; h++) {
#pragma GCC unroll 3
            for (int s = 1; s < sets; s++)
                sum[0][i][h] = _mm256_add_ps(sum[0][i][h], sum[s][i][h]);
            _mm256_storeu_ps(t->c + i * t->ldc + 8 * h, sum[0][i][h]);
        }
    }
}

#endif
