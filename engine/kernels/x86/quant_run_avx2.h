/* kernels/x86/quant_run_avx2.h - the walk over a panel of quantised weights, which
 * gemm_quant_avx2.h and gemm_a8_avx2.h share. Up to TILE_KEPT rows keep their f32 sums in
 * registers; the sums of more rows stay in C, in the first-level cache, and are read and
 * written once for each 32 rows of K.
 *
 * An including file defines TILE_KEPT, TILE_SETS(mr), TILE_A_WORDS, the 32-bit words of 32
 * activations, TILE_SPARSE_ROWS (codes_prefetch.h), and tile_side(), which reads and writes
 * its side of C where mr is larger than TILE_KEPT. */
#ifndef KERNELS_X86_QUANT_RUN_AVX2_H
#define KERNELS_X86_QUANT_RUN_AVX2_H

#include "kernels/x86/codes_avx2.h"

/* The first set of sums of one side begins with C, the others with zero. */
TILE_INLINE void sums_begin(__m256 sum[4][TILE_MR_MAX], const struct kern_gemm_tile *t,
                            const int side, const int mr)
{
    const int sets = TILE_SETS(mr);

#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        sum[0][i] = _mm256_loadu_ps(t->c + i * t->ldc + 8 * side);
#pragma GCC unroll 4
    for (int x = 1; x < sets; x++)
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++)
            sum[x][i] = _mm256_setzero_ps();
}

/* C becomes the sum of all sets. */
TILE_INLINE void sums_end(__m256 sum[4][TILE_MR_MAX], const struct kern_gemm_tile *t,
                          const int side, const int mr)
{
    const int sets = TILE_SETS(mr);

#pragma GCC unroll 4
    for (int x = 1; x < sets; x++)
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++)
            sum[0][i] = _mm256_add_ps(sum[0][i], sum[x][i]);
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        _mm256_storeu_ps(t->c + i * t->ldc + 8 * side, sum[0][i]);
}

TILE_INLINE void tile_side(__m256 sum[4][TILE_MR_MAX], const struct kern_gemm_tile *t,
                           const void *a, const char *b, const char *s, const int side,
                           const int mr);

/* Both sides of 32 rows of K. */
TILE_INLINE void tile_sub(__m256 sum[2][4][TILE_MR_MAX], const struct kern_gemm_tile *t,
                          const void *a, const char *b, const char *s, const int mr)
{
    tile_side(sum[0], t, a, b, s, 0, mr);
    tile_side(sum[1], t, a, b, s, 1, mr);
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const char *unit = t->b, *next = t->next, *a = t->a;
    __m256 sum[2][4][TILE_MR_MAX];

    (void)np;
    for (int i = 0; i < mr && !t->accumulate; i++)
        memset(t->c + i * t->ldc, 0, KERN_PANEL * sizeof(float));
    sums_begin(sum[0], t, 0, mr);
    sums_begin(sum[1], t, 1, mr);
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        const int64_t rows = left < t->k_unit ? left : t->k_unit;
        const int64_t subs = TYPE(SUBS) ? TYPE(SUBS) : rows / KERN_SUB;
        int64_t n = TYPE(SUBS) ? rows / (KERN_SUB * subs) : 1;
        const char *b = unit;

        for (; n > 0; n--, b += TYPE(HEAD) + subs * TYPE(SUB)) {
            for (int64_t i = 0; i < subs; i++, a += 4 * TILE_A_WORDS * mr) {
                const char *s = b + TYPE(HEAD) + i * TYPE(SUB);

                tile_sub(sum, t, a, b, s, mr);
                codes_prefetch(s, mr <= TILE_SPARSE_ROWS && t->sparse);
                if (t->next_step != 0)
                    next = codes_prefetch_next(next, t->next_step);
            }
        }
    }
    if (mr <= TILE_KEPT) {
        sums_end(sum[0], t, 0, mr);
        sums_end(sum[1], t, 1, mr);
    }
}

#endif
