/* kernels/x86/quant_run_avx2.h - the walk over a panel of quantised weights, which
 * gemm_quant_avx2.h and gemm_a8_avx2.h share. Up to TILE_KEPT rows keep their f32 sums in
 * registers; the sums of more rows are in the first-level cache, and are read and written once
 * for each 32 rows of K.
 *
 * An including file defines TILE_KEPT, TILE_SETS(mr), TILE_A_WORDS, the 32-bit words of 32
 * activations, TILE_SPARSE_ROWS (codes_prefetch.h), and tile_sub(). */
#ifndef KERNELS_X86_QUANT_RUN_AVX2_H
#define KERNELS_X86_QUANT_RUN_AVX2_H

#include "kernels/x86/codes_avx2.h"

/* The first set of sums of one side, whose columns begin at c, begins with C, the others with
 * zero. */
TILE_INLINE void sums_begin(__m256 sum[4][TILE_MR_MAX], const float *c, int64_t ldc,
                            const int mr)
{
    const int sets = TILE_SETS(mr);

#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        sum[0][i] = _mm256_loadu_ps(c + i * ldc);
#pragma GCC unroll 4
    for (int x = 1; x < sets; x++)
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++)
            sum[x][i] = _mm256_setzero_ps();
}

/* C becomes the sum of all sets. */
TILE_INLINE void sums_end(__m256 sum[4][TILE_MR_MAX], float *c, int64_t ldc, const int mr)
{
    const int sets = TILE_SETS(mr);

#pragma GCC unroll 4
    for (int x = 1; x < sets; x++)
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++)
            sum[0][i] = _mm256_add_ps(sum[0][i], sum[x][i]);
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        _mm256_storeu_ps(c + i * ldc, sum[0][i]);
}

/* Both sides of 32 rows of K: the sub-block at s of the block at b. Where mr is larger than
 * TILE_KEPT the sums are [mr][KERN_PANEL] at c, else c is not used. */
TILE_INLINE void tile_sub(__m256 sum[2][4][TILE_MR_MAX], float *c, const void *a,
                          const char *b, const char *s, const int mr);

/* All rows of K: from `sum`, or from c, to the same. */
TILE_INLINE void tile_walk(const struct kern_gemm_tile *t, __m256 sum[2][4][TILE_MR_MAX],
                           float *c, const int mr)
{
    const char *unit = t->b, *next = t->next, *a = t->a;
    const bool sparse = mr <= TILE_SPARSE_ROWS && t->sparse;
    const int next_step = t->next_step;

    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        const int64_t rows = left < t->k_unit ? left : t->k_unit;
        const int64_t subs = TYPE(SUBS) ? TYPE(SUBS) : rows / KERN_SUB;
        int64_t n = TYPE(SUBS) ? rows / (KERN_SUB * subs) : 1;
        const char *b = unit;

        for (; n > 0; n--, b += TYPE(HEAD) + subs * TYPE(SUB)) {
            for (int64_t i = 0; i < subs; i++, a += 4 * TILE_A_WORDS * mr) {
                const char *s = b + TYPE(HEAD) + i * TYPE(SUB);

                tile_sub(sum, c, a, b, s, mr);
                codes_prefetch(s, sparse);
                if (next_step != 0)
                    next = codes_prefetch_next(next, next_step);
            }
        }
    }
}

/* Where the sums of more than TILE_KEPT rows are, [mr][KERN_PANEL], in place of C. Rows of C may
 * be a multiple of 4096 bytes apart, and a processor that compares the lower bits of addresses
 * would have each of their loads wait for the store before it. */
struct tile_rows {
    float c[TILE_MR_MAX * KERN_PANEL] __attribute__((aligned(64)));
};

/* Sums in `rows` begin with C, or 0. Returns where they are, in a register: instructions are
 * shorter than for a place in the frame. */
TILE_INLINE float *rows_begin(struct tile_rows *rows, const struct kern_gemm_tile *t,
                              const int mr)
{
    float *c = rows->c;

    __asm__("" : "+r"(c));
    for (int i = 0; i < mr; i++) {
        if (t->accumulate)
            memcpy(c + i * KERN_PANEL, t->c + i * t->ldc, KERN_PANEL * sizeof(float));
        else
            memset(c + i * KERN_PANEL, 0, KERN_PANEL * sizeof(float));
    }
    return c;
}

TILE_INLINE void rows_end(const float *c, const struct kern_gemm_tile *t, const int mr)
{
    for (int i = 0; i < mr; i++)
        memcpy(t->c + i * t->ldc, c + i * KERN_PANEL, KERN_PANEL * sizeof(float));
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    __m256 sum[2][4][TILE_MR_MAX];
    struct tile_rows rows;
    float *c = NULL;

    (void)np;
    if (mr > TILE_KEPT) {
        c = rows_begin(&rows, t, mr);
        tile_walk(t, sum, c, mr);
        rows_end(c, t, mr);
        return;
    }
    for (int i = 0; i < mr && !t->accumulate; i++)
        memset(t->c + i * t->ldc, 0, KERN_PANEL * sizeof(float));
    sums_begin(sum[0], t->c, t->ldc, mr);
    sums_begin(sum[1], t->c + 8, t->ldc, mr);
    tile_walk(t, sum, c, mr);
    sums_end(sum[0], t->c, t->ldc, mr);
    sums_end(sum[1], t->c + 8, t->ldc, mr);
}

#endif
