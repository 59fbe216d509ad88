/* kernels/x86/gemm_w4c_a8_avx2.h - products of 8 bits where the weights of a column share their
 * scale (kernels/panel.h): only sums of integers in the loop.
 *
 * One panel, as two sides of 8 columns: both at once where the registers hold their sums, else
 * one after the other. Include it after the header of dots(). */
#ifndef KERNELS_X86_GEMM_W4C_A8_AVX2_H
#define KERNELS_X86_GEMM_W4C_A8_AVX2_H

/* One side of C from the sums over the block at b. `first` and `last` are the words of its
 * first and last sub-block in A. */
TILE_INLINE void side_end(const struct kern_gemm_tile *t, const __m256i dot[TILE_MR_MAX],
                          const int32_t *first, const int32_t *last, const char *b,
                          const int side, const int mr)
{
    const __m256 d = f16_row(b, side), min = f16_row(b + 2 * KERN_PANEL, side);

#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
        float scale = ((const float *)first)[KERN_A_I8_SCALE * mr + i];
        int32_t a_sum =
            last[(KERN_A_I8_SUM + 1) * mr + i] - first[KERN_A_I8_SUM * mr + i];
        float *to = t->c + i * t->ldc + 8 * side;
        __m256 c =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[i]),
                            _mm256_mul_ps(d, _mm256_set1_ps(scale)), _mm256_loadu_ps(to));

        c = _mm256_fnmadd_ps(min, _mm256_set1_ps(scale * (float)a_sum), c);
        _mm256_storeu_ps(to, c);
    }
}

/* The n sub-blocks of the block at b with TILE_SIDES sides from `side` on; returns what is
 * prefetched next. */
TILE_INLINE const char *run_sides(const struct kern_gemm_tile *t, const int32_t *a,
                                  const char *b, int64_t n, const char *next,
                                  const int side, const int mr)
{
    const char *s = b + TYPE(HEAD);
    const bool sparse = mr <= TILE_SPARSE_ROWS && t->sparse;
    const int sides = TILE_SIDES(mr, DOTS_MORE);
    const int32_t *first = a;
    __m256i dot[2][TILE_MR_MAX];

#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        dot[0][i] = dot[1][i] = _mm256_setzero_si256();
    for (; n > 0; n--, s += TYPE(SUB), a += KERN_A_I8_WORDS * mr) {
        dots(dot, a, s, 0, side, mr, DOTS_MORE);
        if (side == 0) {
            codes_prefetch(s, sparse);
            next = codes_prefetch_next(next, t->next_step);
        }
    }
#pragma GCC unroll 2
    for (int x = 0; x < sides; x++)
        side_end(t, dot[x], first, a - KERN_A_I8_WORDS * mr, b, side + x, mr);
    return next;
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const int sides = TILE_SIDES(mr, DOTS_MORE);
    const char *unit = t->b, *next = t->next;
    const int32_t *a = t->a;

    (void)np;
    for (int i = 0; i < mr && !t->accumulate; i++)
        memset(t->c + i * t->ldc, 0, KERN_PANEL * sizeof(float));
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t n = (left < t->k_unit ? left : t->k_unit) / KERN_SUB;

#pragma GCC unroll 2
        for (int side = 0; side < 2; side += sides)
            next = run_sides(t, a, unit, n, next, side, mr);
        a += n * KERN_A_I8_WORDS * mr;
    }
}

TILE_DISPATCH

#endif
