/* kernels/x86/gemm_w4c_a8_avx2.h - products of 8 bits where the weights of a column share their
 * scale (kernels/panel.h): only sums of integers in the loop.
 *
 * One panel, as two sides of 8 columns: both at once for few rows, which are bound by reading
 * the weights, else one after the other. Include it after the header of dots(). */
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

/* The n sub-blocks of the block at b with both sides; returns what is prefetched next. */
TILE_INLINE const char *both_sides(const struct kern_gemm_tile *t, const int32_t *a,
                                   const char *b, int64_t n, const char *next,
                                   const int mr)
{
    const char *s = b + TYPE(HEAD);
    const int32_t *first = a;
    __m256i dot[2][TILE_MR_MAX];

    dots_start(dot[0], a, 0, mr);
    dots_start(dot[1], a, 0, mr);
    for (; n > 0; n--, s += TYPE(SUB), a += KERN_A_I8_WORDS * mr) {
        dots(dot[0], a, s, 0, 0, mr);
        dots(dot[1], a, s, 0, 1, mr);
        codes_prefetch(s, mr <= TILE_SPARSE_ROWS && t->sparse);
        next = codes_prefetch_next(next, t->next_step);
    }
    side_end(t, dot[0], first, a - KERN_A_I8_WORDS * mr, b, 0, mr);
    side_end(t, dot[1], first, a - KERN_A_I8_WORDS * mr, b, 1, mr);
    return next;
}

/* The same with one side. */
TILE_INLINE const char *one_side(const struct kern_gemm_tile *t, const int32_t *a,
                                 const char *b, int64_t n, const char *next,
                                 const int side, const int mr)
{
    const char *s = b + TYPE(HEAD);
    const int32_t *first = a;
    __m256i dot[TILE_MR_MAX];

    dots_start(dot, a, 0, mr);
    for (; n > 0; n--, s += TYPE(SUB), a += KERN_A_I8_WORDS * mr) {
        dots(dot, a, s, 0, side, mr);
        if (side == 0) {
            codes_prefetch(s, mr <= TILE_SPARSE_ROWS && t->sparse);
            next = codes_prefetch_next(next, t->next_step);
        }
    }
    side_end(t, dot, first, a - KERN_A_I8_WORDS * mr, b, side, mr);
    return next;
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const char *unit = t->b, *next = t->next;
    const int32_t *a = t->a;

    (void)np;
    for (int i = 0; i < mr && !t->accumulate; i++)
        memset(t->c + i * t->ldc, 0, KERN_PANEL * sizeof(float));
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t n = (left < t->k_unit ? left : t->k_unit) / KERN_SUB;

        if (mr <= TILE_KEPT) {
            next = both_sides(t, a, unit, n, next, mr);
        } else {
            next = one_side(t, a, unit, n, next, 0, mr);
            next = one_side(t, a, unit, n, next, 1, mr);
        }
        a += n * KERN_A_I8_WORDS * mr;
    }
}

TILE_DISPATCH

#endif
