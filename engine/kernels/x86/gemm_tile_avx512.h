/* kernels/x86/gemm_tile_avx512.h - the AVX-512 micro-kernel, written once.
 *
 * A file that includes this says how its weights become vectors:
 *   TILE_STEP_ROWS   rows of A one step consumes, each with its own broadcast
 *   TILE_K_STEP      rows of K one step consumes (2 where a pair shares a broadcast)
 *   TILE_STEP_BYTES  bytes of a panel one step consumes
 *   TILE_LOAD(b, j)  row j of a step as a vector;  TILE_FMA(x, b, c) = x * b + c
 * and gets a function for every mr x np that fits the 32 vector registers: mr * np sums,
 * np columns of B and one broadcast of A. Up to 3 rows also take 4 panels, which also
 * makes longer runs of a split matrix's bytes; up to 3 rows keep two sets of sums (steps
 * alternate) to hide the latency of the multiply-add.   Paper: Sandwich 6 (the register
 * file limits the set). */
#ifndef KERNELS_GEMM_TILE_AVX512_H
#define KERNELS_GEMM_TILE_AVX512_H

#include <immintrin.h>

#include "kernels/kern.h"

#define TILE_MR_MAX 14
#define TILE_NP_MAX 2
#define TILE_MR_FEW 3
#define TILE_NP_FEW 4
#define TILE_INLINE static inline __attribute__((always_inline))

/* How far ahead of its use a line of weights is asked for: 4 KiB inside a panel; in a
 * split matrix the same line two units on, as a unit's share of a panel is only 1 to 4
 * KiB long. Measured on Zen 5, out of memory: at 14 rows asking doubles the speed of a
 * split matrix; up to 3 rows the hardware does better alone there (46 against 40 GB/s
 * from one core), if the tile is 4 panels wide so that a unit's bytes form longer runs.
 */
#define TILE_AHEAD_BYTES 4096
#define TILE_AHEAD_UNITS 2

struct tile_walk {
    const float *a; /* next step's row of A's block */
    const char *b;  /* next step's row of panel 0 */
    size_t b_panel_bytes, ahead_bytes;
};

/* One step of K into one set of sums. */
TILE_INLINE void tile_step(__m512 acc[TILE_MR_MAX][TILE_NP_FEW], struct tile_walk *w,
                           const int mr, const int np, const int ask)
{
#pragma GCC unroll 2
    for (int j = 0; j < TILE_STEP_ROWS; j++) {
        __m512 b[TILE_NP_FEW];

#pragma GCC unroll 4
        for (int p = 0; p < np; p++)
            b[p] = TILE_LOAD(w->b + p * w->b_panel_bytes, j);
#pragma GCC unroll 14
        for (int i = 0; i < mr; i++) {
            __m512 x = _mm512_set1_ps(w->a[j * mr + i]);

#pragma GCC unroll 4
            for (int p = 0; p < np; p++)
                acc[i][p] = TILE_FMA(x, b[p], acc[i][p]);
        }
    }
#pragma GCC unroll 4
    for (int p = 0; ask && p < np; p++)
        _mm_prefetch(w->b + p * w->b_panel_bytes + w->ahead_bytes, _MM_HINT_T0);
    w->a += TILE_STEP_ROWS * mr;
    w->b += TILE_STEP_BYTES;
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np,
                          const int ask)
{
    const int two_sums = mr <= 3;
    struct tile_walk w = {.a = t->a, .b_panel_bytes = t->b_panel_bytes};
    const char *unit = t->b;
    __m512 acc[TILE_MR_MAX][TILE_NP_FEW], odd[TILE_MR_MAX][TILE_NP_FEW];

    w.ahead_bytes =
        t->k > t->k_unit ? TILE_AHEAD_UNITS * t->b_unit_bytes : TILE_AHEAD_BYTES;
#pragma GCC unroll 14
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
        for (int p = 0; p < np; p++) {
            acc[i][p] = t->accumulate ? _mm512_loadu_ps(t->c + i * t->ldc + p * 16)
                                      : _mm512_setzero_ps();
            odd[i][p] = _mm512_setzero_ps();
        }
    }
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t rows = left < t->k_unit ? left : t->k_unit;
        int64_t steps = rows / TILE_K_STEP;

        w.b = unit;
        for (; steps >= 4; steps -= 4) {
            tile_step(acc, &w, mr, np, ask);
            tile_step(two_sums ? odd : acc, &w, mr, np, ask);
            tile_step(acc, &w, mr, np, ask);
            tile_step(two_sums ? odd : acc, &w, mr, np, ask);
        }
        for (; steps > 0; steps--)
            tile_step(acc, &w, mr, np, ask);
    }
#pragma GCC unroll 14
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
        for (int p = 0; p < np; p++) {
            if (two_sums)
                acc[i][p] = _mm512_add_ps(acc[i][p], odd[i][p]);
            _mm512_storeu_ps(t->c + i * t->ldc + p * 16, acc[i][p]);
        }
    }
}

/* One function a shape, so that every one has its sums in registers. */
#define TILE_SHAPES_FEW(X)  X(1) X(2) X(3)
#define TILE_SHAPES_MANY(X) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define TILE_FUNCTION(mr, np)                                                            \
    static void tile_##mr##x##np(const struct kern_gemm_tile *t)                         \
    {                                                                                    \
        if (mr <= TILE_MR_FEW && t->k > t->k_unit)                                       \
            tile_run(t, mr, np, 0);                                                      \
        else                                                                             \
            tile_run(t, mr, np, 1);                                                      \
    }
#define TILE_TWO(mr)  TILE_FUNCTION(mr, 1) TILE_FUNCTION(mr, 2)
#define TILE_FOUR(mr) TILE_TWO(mr) TILE_FUNCTION(mr, 3) TILE_FUNCTION(mr, 4)
TILE_SHAPES_FEW(TILE_FOUR)
TILE_SHAPES_MANY(TILE_TWO)

#define TILE_ROW_FEW(mr)  {tile_##mr##x1, tile_##mr##x2, tile_##mr##x3, tile_##mr##x4},
#define TILE_ROW_MANY(mr) {tile_##mr##x1, tile_##mr##x2, NULL, NULL},
static const kern_gemm_fn tile_table[TILE_MR_MAX][TILE_NP_FEW] = {
    TILE_SHAPES_FEW(TILE_ROW_FEW) TILE_SHAPES_MANY(TILE_ROW_MANY)};

static void tile_dispatch(const struct kern_gemm_tile *t)
{
    tile_table[t->mr - 1][t->np - 1](t);
}

#endif
