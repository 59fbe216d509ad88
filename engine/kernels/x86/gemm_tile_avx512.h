/* kernels/x86/gemm_tile_avx512.h - the AVX-512 micro-kernel, written once.
 *
 * A file that includes this says how its weights become vectors:
 *   TILE_STEP_ROWS   rows of A one step consumes, each with its own broadcast
 *   TILE_K_STEP      rows of K one step consumes (2 where a pair shares a broadcast)
 *   TILE_STEP_BYTES  bytes of a panel one step consumes
 *   TILE_LOAD(b, j)  row j of a step as a vector;  TILE_FMA(x, b, c) = x * b + c
 * and gets a function for every mr x np that fits the 32 vector registers: mr * np sums,
 * np columns of B and one broadcast of A. Small shapes keep two sets of sums (steps
 * alternate) to hide the latency of the multiply-add.   Paper: Sandwich 6 (the register
 * file limits the set). */
#ifndef KERNELS_GEMM_TILE_AVX512_H
#define KERNELS_GEMM_TILE_AVX512_H

#include <immintrin.h>

#include "kernels/kern.h"

#define TILE_MR_MAX 14
#define TILE_NP_MAX 2
/* Two multiply-adds a cycle of four cycles' latency want this many sums. */
#define TILE_SUMS_MIN 8
#define TILE_INLINE   static inline __attribute__((always_inline))

/* How far ahead of its use a line of weights is asked for: 8 KiB of one panel, or half
 * that of two. A tile that walks the units of a split matrix asks for the same line two
 * units on, as a unit's share of a panel is only 1 to 4 KiB long. Measured on Zen 5, out
 * of memory: at 14 rows asking doubles the speed of a split matrix. */
#define TILE_AHEAD_BYTES ((size_t)8192)
#define TILE_AHEAD_UNITS 2

struct tile_walk {
    const float *a; /* next step's row of A's block */
    const char *b;  /* next step's row of panel 0 */
    size_t b_panel_bytes, ahead_bytes;
};

/* One step of K into one set of sums. */
TILE_INLINE void tile_step(__m512 acc[TILE_MR_MAX][TILE_NP_MAX], struct tile_walk *w,
                           const int mr, const int np)
{
#pragma GCC unroll 2
    for (int j = 0; j < TILE_STEP_ROWS; j++) {
        __m512 b[TILE_NP_MAX];

#pragma GCC unroll 2
        for (int p = 0; p < np; p++)
            b[p] = TILE_LOAD(w->b + p * w->b_panel_bytes, j);
#pragma GCC unroll 14
        for (int i = 0; i < mr; i++) {
            __m512 x = _mm512_set1_ps(w->a[j * mr + i]);

#pragma GCC unroll 2
            for (int p = 0; p < np; p++)
                acc[i][p] = TILE_FMA(x, b[p], acc[i][p]);
        }
    }
#pragma GCC unroll 2
    for (int p = 0; p < np; p++)
        _mm_prefetch(w->b + p * w->b_panel_bytes + w->ahead_bytes, _MM_HINT_T0);
    w->a += TILE_STEP_ROWS * mr;
    w->b += TILE_STEP_BYTES;
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const int two_sums = mr * np <= TILE_SUMS_MIN / 2;
    struct tile_walk w = {.a = t->a, .b_panel_bytes = t->b_panel_bytes};
    const char *unit = t->b;
    __m512 acc[TILE_MR_MAX][TILE_NP_MAX], odd[TILE_MR_MAX][TILE_NP_MAX];

    w.ahead_bytes =
        t->k > t->k_unit ? TILE_AHEAD_UNITS * t->b_unit_bytes : TILE_AHEAD_BYTES / np;
#pragma GCC unroll 14
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 2
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
            tile_step(acc, &w, mr, np);
            tile_step(two_sums ? odd : acc, &w, mr, np);
            tile_step(acc, &w, mr, np);
            tile_step(two_sums ? odd : acc, &w, mr, np);
        }
        for (; steps > 0; steps--)
            tile_step(acc, &w, mr, np);
    }
#pragma GCC unroll 14
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 2
        for (int p = 0; p < np; p++) {
            if (two_sums)
                acc[i][p] = _mm512_add_ps(acc[i][p], odd[i][p]);
            _mm512_storeu_ps(t->c + i * t->ldc + p * 16, acc[i][p]);
        }
    }
}

/* One function a shape, so that every one has its sums in registers. */
#define TILE_SHAPES(X)                                                                   \
    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define TILE_FUNCTION(mr, np)                                                            \
    static void tile_##mr##x##np(const struct kern_gemm_tile *t)                         \
    {                                                                                    \
        tile_run(t, mr, np);                                                             \
    }
#define TILE_ROWS(mr) TILE_FUNCTION(mr, 1) TILE_FUNCTION(mr, 2)
TILE_SHAPES(TILE_ROWS)

#define TILE_ENTRY(mr) {tile_##mr##x1, tile_##mr##x2},
static const kern_gemm_fn tile_table[TILE_MR_MAX][TILE_NP_MAX] = {
    TILE_SHAPES(TILE_ENTRY)};

static void tile_dispatch(const struct kern_gemm_tile *t)
{
    tile_table[t->mr - 1][t->np - 1](t);
}

#endif
