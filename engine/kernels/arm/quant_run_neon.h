/* kernels/arm/quant_run_neon.h - the walk over a panel of quantised weights, which
 * gemm_quant_neon.h and gemm_a8_neon.h share. Up to TILE_KEPT rows keep their f32 sums in
 * registers; the sums of more rows stay in C, in the first-level cache, and are read and
 * written once for each 32 rows of K.
 *
 * An including file defines TILE_KEPT, TILE_A_WORDS, the 32-bit words of 32 activations, and
 * tile_sub(), which calls sums_read() and sums_write() for each quarter where mr is larger. */
#ifndef KERNELS_ARM_QUANT_RUN_NEON_H
#define KERNELS_ARM_QUANT_RUN_NEON_H

#include "kernels/arm/codes_neon.h"

TILE_INLINE void sums_read(float32x4_t sum[TILE_MR_MAX], const struct kern_gemm_tile *t,
                           const int quarter, const int mr)
{
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        sum[i] = vld1q_f32(t->c + i * t->ldc + 4 * quarter);
}

TILE_INLINE void sums_write(const float32x4_t sum[TILE_MR_MAX],
                            const struct kern_gemm_tile *t, const int quarter,
                            const int mr)
{
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        vst1q_f32(t->c + i * t->ldc + 4 * quarter, sum[i]);
}

TILE_INLINE void tile_sub(float32x4_t sum[4][TILE_MR_MAX], const struct kern_gemm_tile *t,
                          const void *a, const uint8_t *b, const uint8_t *s,
                          const int mr);

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const uint8_t *unit = t->b;
    const char *a = t->a;
    float32x4_t sum[4][TILE_MR_MAX];

    (void)np;
    for (int i = 0; i < mr && !t->accumulate; i++)
        memset(t->c + i * t->ldc, 0, KERN_PANEL * sizeof(float));
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
        sums_read(sum[q], t, q, mr);
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        const int64_t rows = left < t->k_unit ? left : t->k_unit;
        const int64_t subs = TYPE(SUBS) ? TYPE(SUBS) : rows / KERN_SUB;
        int64_t n = TYPE(SUBS) ? rows / (KERN_SUB * subs) : 1;
        const uint8_t *b = unit;

        for (; n > 0; n--, b += TYPE(HEAD) + subs * TYPE(SUB))
            for (int64_t i = 0; i < subs; i++, a += 4 * TILE_A_WORDS * mr)
                tile_sub(sum, t, a, b, b + TYPE(HEAD) + i * TYPE(SUB), mr);
    }
#pragma GCC unroll 4
    for (int q = 0; q < 4 && mr <= TILE_KEPT; q++)
        sums_write(sum[q], t, q, mr);
}

#endif
