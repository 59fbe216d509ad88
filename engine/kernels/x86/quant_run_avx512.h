/* kernels/x86/quant_run_avx512.h - the walk over a panel of quantised weights, which
 * gemm_quant_avx512.h and gemm_a8_avx512vnni.h share.
 *
 * An including file defines TILE_SETS(mr), TILE_A_WORDS, the 32-bit words of 32 activations,
 * TILE_SPARSE_ROWS (codes_prefetch.h) and tile_sub(), which adds to sum[p] of panel p; of one
 * panel, to the sets of sums in turn. */
#ifndef KERNELS_X86_QUANT_RUN_AVX512_H
#define KERNELS_X86_QUANT_RUN_AVX512_H

#include "kernels/x86/codes_avx512.h"

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const int sets = np > 1 ? 1 : TILE_SETS(mr);
    const char *unit = t->b, *next = t->next, *a = t->a;
    __m512 sum[4][TILE_MR_MAX];

#pragma GCC unroll 20
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 2
        for (int p = 0; p < np; p++)
            sum[p][i] = t->accumulate
                            ? _mm512_loadu_ps(t->c + i * t->ldc + KERN_PANEL * p)
                            : _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int x = 1; x < sets; x++)
            sum[x][i] = _mm512_setzero_ps();
    }
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        const int64_t rows = left < t->k_unit ? left : t->k_unit;
        const int64_t subs = TYPE(SUBS) ? TYPE(SUBS) : rows / KERN_SUB;
        int64_t n = TYPE(SUBS) ? rows / (KERN_SUB * subs) : 1;
        const char *b = unit;

        for (; n > 0; n--, b += TYPE(HEAD) + subs * TYPE(SUB)) {
            for (int64_t i = 0; i < subs; i++, a += 4 * TILE_A_WORDS * mr) {
                const char *s = b + TYPE(HEAD) + i * TYPE(SUB);

                tile_sub(sum, (const void *)a, b, s, t->b_panel_bytes, mr, np);
#pragma GCC unroll 2
                for (int p = 0; p < np; p++)
                    codes_prefetch(s + (size_t)p * t->b_panel_bytes,
                                   mr <= TILE_SPARSE_ROWS && t->sparse);
                if (t->next_step != 0)
                    next = codes_prefetch_next(next, t->next_step);
            }
        }
    }
#pragma GCC unroll 20
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
        for (int x = 1; x < sets; x++)
            sum[0][i] = _mm512_add_ps(sum[0][i], sum[x][i]);
#pragma GCC unroll 2
        for (int p = 0; p < np; p++)
            _mm512_storeu_ps(t->c + i * t->ldc + KERN_PANEL * p, sum[p][i]);
    }
}

TILE_DISPATCH

#endif
