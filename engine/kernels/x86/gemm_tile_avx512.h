/* kernels/x86/gemm_tile_avx512.h - the AVX-512 micro-kernel, written once.
 *
 * A file that includes this says how its weights become vectors:
 *   TILE_STEP_ROWS   rows of A one step consumes, each with its own broadcast
 *   TILE_K_STEP      rows of K one step consumes (2 where a pair shares a broadcast)
 *   TILE_STEP_BYTES  bytes of a panel one step consumes
 *   TILE_LOAD(b, j)  row j of a step as a vector;  TILE_FMA(c, x, b): c += x * b;
 *                    TILE_FMA_AT(c, a, b) with *a in every lane of x
 *   TILE_SUMS_MIN    8: two multiply-adds a cycle of four cycles' latency want this many sums;
 *                    0: one for each element, whatever its latency costs (batch invariant)
 * and ends in TILE_DISPATCH, or with TILE_SUMS_MIN 0 in TILE_DISPATCH_FEW().
 * The set is every mr x np with mr * np sums, np columns of B and one broadcast of A in
 * the 32 vector registers. Small shapes keep two sets of sums (steps alternate) to hide
 * the latency of the multiply-add. */
#ifndef KERNELS_GEMM_TILE_AVX512_H
#define KERNELS_GEMM_TILE_AVX512_H

#include <immintrin.h>

#include "kernels/tile_set.h"

#define TILE_MR_MAX 30
#define TILE_ROWS                                                                        \
    {                                                                                    \
        30, 14, 9, 6, 5, 4, 3, 2                                                         \
    }
#define TILE_SET(X)                                                                      \
    TILE_UP_30(X, 1)                                                                     \
    TILE_UP_14(X, 2)                                                                     \
    TILE_UP_9(X, 3)                                                                      \
    TILE_UP_6(X, 4) TILE_UP_5(X, 5) TILE_UP_4(X, 6) TILE_UP_3(X, 7) TILE_UP_2(X, 8)
/* Fewer than 8 sums. */
#define TILE_SET_FEW(X)                                                                  \
    TILE_UP_7(X, 1)                                                                      \
    TILE_UP_3(X, 2)                                                                      \
    TILE_UP_2(X, 3) TILE_UP_1(X, 4) TILE_UP_1(X, 5) TILE_UP_1(X, 6) TILE_UP_1(X, 7)

/* Prefetching B. A tile of many sums asks for the line that it multiplies 4 KiB later, into
 * the first level. With at most TILE_FAR_SUMS it has little else to wait for than memory, and
 * asking 8 KiB ahead into the second level takes 0.91 to 1.0 of the time; with at most
 * TILE_SPARSE_SUMS every fourth line is enough on some processors (cpu_prefetch()). Measured on
 * Zen 4, two threads, weights of f32 and bf16, out of memory. Several panels share the
 * distance, which is 16 KiB for them, and near their end ask for the panels of the next tile, not
 * for what follows in memory: 8 rows by 2 panels are 1.1 to 1.36 times as fast as with 4 KiB, and
 * tiles of a prompt of 28 and 64 rows 1.07 and 1.03 times (Zen 5, bf16). A tile that
 * walks the units of a split matrix asks for the same line two units on, as a unit's
 * share of a panel is only 1 to 4 KiB long. Measured on Zen 5, out of memory: at 14 rows
 * asking doubles the speed of a split matrix. */
#define TILE_FAR_SUMS    8
#define TILE_SPARSE_SUMS 2
#define TILE_AHEAD(mr, np)                                                               \
    ((size_t)((mr) * (np) <= TILE_FAR_SUMS ? 8192 : (np) > 1 ? 16384 : 4096) / (np))
#define TILE_AHEAD_UNITS 2

/* c += x * b in place. An intrinsic leaves the compiler free to put the sum where x or b
 * was, and gcc 12 then runs out of registers with the larger shapes. */
#define TILE_FMA_F32(c, x, b) __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(x), "v"(b))
#define TILE_FMA_F32_AT(c, a, b)                                                         \
    __asm__("vfmadd231ps %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(a)), "v"(b))

struct tile_walk {
    const float *a;                    /* next step's row of A's block */
    const char *b;                     /* next step's row of panel 0 */
    size_t b_panel_bytes, ahead_bytes; /* ahead: from a line to the one to prefetch */
    const char *next;                  /* prefetched for later: kern_gemm_tile.next */
    int next_step;
    bool sparse;
};

/* `step` counts from 0 to 3 and over again, so that a tile may prefetch every fourth time. */
TILE_INLINE void tile_prefetch(const struct tile_walk *w, const int step, const int mr,
                               const int np)
{
    if (mr * np <= TILE_SPARSE_SUMS && step != 0 && w->sparse)
        return;
#pragma GCC unroll 8
    for (int p = 0; p < np; p++) {
        const char *line = w->b + p * w->b_panel_bytes + w->ahead_bytes;

        if (mr * np <= TILE_FAR_SUMS)
            _mm_prefetch(line, _MM_HINT_T1);
        else
            _mm_prefetch(line, _MM_HINT_T0);
    }
}

/* One step of K into one set of sums; `step`: see tile_prefetch. */
TILE_INLINE void tile_step(__m512 acc[TILE_MR_MAX][KERN_NP_MAX], struct tile_walk *w,
                           const int step, const int mr, const int np)
{
#pragma GCC unroll 2
    for (int j = 0; j < TILE_STEP_ROWS; j++) {
        __m512 b[KERN_NP_MAX];

#pragma GCC unroll 8
        for (int p = 0; p < np; p++)
            b[p] = TILE_LOAD(w->b + p * w->b_panel_bytes, j);
#pragma GCC unroll 30
        for (int i = 0; i < mr; i++) {
            const float *a = &w->a[j * mr + i];
            __m512 x;

            if (np == 1) { /* nobody else needs the broadcast */
                TILE_FMA_AT(acc[i][0], a, b[0]);
                continue;
            }
            x = _mm512_set1_ps(*a);
#pragma GCC unroll 8
            for (int p = 0; p < np; p++)
                TILE_FMA(acc[i][p], x, b[p]);
        }
    }
    tile_prefetch(w, step, mr, np);
    _mm_prefetch(w->next, _MM_HINT_T1);
    w->next += w->next_step;
    w->a += TILE_STEP_ROWS * mr;
    w->b += TILE_STEP_BYTES;
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const int two_sums = mr * np < TILE_SUMS_MIN;
    struct tile_walk w = {.a = t->a,
                          .b_panel_bytes = t->b_panel_bytes,
                          .next = t->next,
                          .next_step = t->next_step,
                          .sparse = t->sparse};
    const char *unit = t->b;
    __m512 acc[TILE_MR_MAX][KERN_NP_MAX], odd[TILE_MR_MAX][KERN_NP_MAX];

    w.ahead_bytes =
        t->k > t->k_unit ? TILE_AHEAD_UNITS * t->b_unit_bytes : TILE_AHEAD(mr, np);
#pragma GCC unroll 30
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 8
        for (int p = 0; p < np; p++) {
            acc[i][p] = t->accumulate ? _mm512_loadu_ps(t->c + i * t->ldc + p * 16)
                                      : _mm512_setzero_ps();
            odd[i][p] = _mm512_setzero_ps();
        }
    }
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t rows = left < t->k_unit ? left : t->k_unit;
        int64_t steps = rows / TILE_K_STEP;
        int64_t last = rows < t->k ? 0 : (int64_t)(w.ahead_bytes / TILE_STEP_BYTES);

        w.b = unit;
        for (;;
             last = 0) { /* in the last steps the line to prefetch is in the next tile */
            for (; steps >= last + 4; steps -= 4) {
                tile_step(acc, &w, 0, mr, np);
                tile_step(two_sums ? odd : acc, &w, 1, mr, np);
                tile_step(acc, &w, 2, mr, np);
                tile_step(two_sums ? odd : acc, &w, 3, mr, np);
            }
            if (last == 0)
                break;
            w.ahead_bytes += (size_t)np * t->b_panel_bytes -
                             (size_t)(t->k / TILE_K_STEP) * TILE_STEP_BYTES;
        }
        for (; steps > 0; steps--)
            tile_step(acc, &w, 0, mr, np);
    }
#pragma GCC unroll 30
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 8
        for (int p = 0; p < np; p++) {
            if (two_sums)
                acc[i][p] = _mm512_add_ps(acc[i][p], odd[i][p]);
            _mm512_storeu_ps(t->c + i * t->ldc + p * 16, acc[i][p]);
        }
    }
}

#endif
