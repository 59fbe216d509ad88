/* kernels/x86/gemm_tile_avx512.h - the AVX-512 micro-kernel, written once.
 *
 * A file that includes this says how its weights become vectors:
 *   TILE_STEP_ROWS   rows of A one step consumes, each with its own broadcast
 *   TILE_K_STEP      rows of K one step consumes (2 where a pair shares a broadcast)
 *   TILE_STEP_BYTES  bytes of a panel one step consumes
 *   TILE_LOAD(b, j)  row j of a step as a vector;  TILE_FMA(x, b, c) = x * b + c
 * and gets a function for every mr x np that fits the 32 vector registers: mr * np sums,
 * np columns of B and one broadcast of A. Few rows leave the multiply-add latency
 * exposed, so up to 3 rows keep two sets of sums (steps alternate) and, as the time then
 * goes to memory, they prefetch.   Paper: Sandwich 6 (micro-kernels limited by the
 * register file). */
#ifndef KERNELS_GEMM_TILE_AVX512_H
#define KERNELS_GEMM_TILE_AVX512_H

#include <immintrin.h>

#include "kernels/kern.h"

#define TILE_MR_MAX 14
#define TILE_NP_MAX 2
#define TILE_INLINE static inline __attribute__((always_inline))

/* How far ahead of its use a line of weights is asked for: 4 KiB inside a panel; in a
 * split matrix the same line two units on, as a unit's share of a panel is only 1 to 2
 * KiB long. There, up to 3 rows leave it to the hardware, which then keeps up by itself
 * (measured: 43 against 40 GB/s from one Zen 5 core; at 14 rows the request doubles the
 * speed). */
#define TILE_AHEAD_BYTES     4096
#define TILE_AHEAD_UNITS(mr) ((mr) <= 3 ? 0 : 2)

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
        __m512 b0 = TILE_LOAD(w->b, j);
        __m512 b1 = np > 1 ? TILE_LOAD(w->b + w->b_panel_bytes, j) : _mm512_setzero_ps();

#pragma GCC unroll 14
        for (int i = 0; i < mr; i++) {
            __m512 x = _mm512_set1_ps(w->a[j * mr + i]);

            acc[i][0] = TILE_FMA(x, b0, acc[i][0]);
            if (np > 1)
                acc[i][1] = TILE_FMA(x, b1, acc[i][1]);
        }
    }
    _mm_prefetch(w->b + w->ahead_bytes, _MM_HINT_T0);
    if (np > 1)
        _mm_prefetch(w->b + w->b_panel_bytes + w->ahead_bytes, _MM_HINT_T0);
    w->a += TILE_STEP_ROWS * mr;
    w->b += TILE_STEP_BYTES;
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const int two_sums = mr <= 3;
    struct tile_walk w = {.a = t->a, .b_panel_bytes = t->b_panel_bytes};
    const char *unit = t->b;
    __m512 acc[TILE_MR_MAX][TILE_NP_MAX], odd[TILE_MR_MAX][TILE_NP_MAX];

    w.ahead_bytes =
        t->k > t->k_unit ? TILE_AHEAD_UNITS(mr) * t->b_unit_bytes : TILE_AHEAD_BYTES;
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
#define TILE_FUNCTIONS(mr)                                                               \
    static void tile_##mr##x1(const struct kern_gemm_tile *t)                            \
    {                                                                                    \
        tile_run(t, mr, 1);                                                              \
    }                                                                                    \
    static void tile_##mr##x2(const struct kern_gemm_tile *t)                            \
    {                                                                                    \
        tile_run(t, mr, 2);                                                              \
    }
TILE_SHAPES(TILE_FUNCTIONS)

#define TILE_ROW(mr) {tile_##mr##x1, tile_##mr##x2},
static const kern_gemm_fn tile_table[TILE_MR_MAX][TILE_NP_MAX] = {TILE_SHAPES(TILE_ROW)};

static void tile_dispatch(const struct kern_gemm_tile *t)
{
    tile_table[t->mr - 1][t->np - 1](t);
}

#endif
