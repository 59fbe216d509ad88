/* kernels/x86/gemm_a8_bytes_avx2.h - the products of gemm_a8_avx2.h with columns that were
 * converted once for many blocks of rows: codes are bytes, and scales and mins are f32.
 *
 * Include it after gemm_a8_avx2.h. */
#ifndef KERNELS_X86_GEMM_A8_BYTES_AVX2_H
#define KERNELS_X86_GEMM_A8_BYTES_AVX2_H

/* A converted sub-block: [8][16][4] codes, row 4 j + i of column c at (j, c, i); then [16] scales
 * for each of TYPE(HALVES); then as many mins. */
#define BYTES_SCALES 512
#define BYTES_MINS   (BYTES_SCALES + 64 * TYPE(HALVES))
#define BYTES_SUB    (BYTES_MINS + 64 * TYPE(HALVES) * TYPE(MIN))
_Static_assert(BYTES_SUB <= KERN_CONVERTED_BYTES(KERN_SUB, 1), "no room in scratch");

TILE_INLINE void convert_sub(char *to, const char *b, const char *s)
{
#pragma GCC unroll 2
    for (int side = 0; side < 2; side++, to += 32) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            _mm256_storeu_si256((__m256i_u *)(to + 64 * j), codes(s, j, side, true));
#pragma GCC unroll 2
        for (int h = 0; h < TYPE(HALVES); h++) {
            _mm256_storeu_ps((float *)(to + BYTES_SCALES + 64 * h),
                             scales(b, s, h, side));
            if (TYPE(MIN))
                _mm256_storeu_ps((float *)(to + BYTES_MINS + 64 * h),
                                 mins(b, s, h, side));
        }
    }
}

static void bytes_convert(const struct kern_gemm_tile *t, void *to, float *col_factor)
{
    const char *unit = t->b;
    char *at = to;

    (void)col_factor;
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        const int64_t subs = (left < t->k_unit ? left : t->k_unit) / KERN_SUB;
        const char *b = unit, *s = b + TYPE(HEAD);

        for (int64_t i = 0; i < subs; i++, s += TYPE(SUB), at += BYTES_SUB) {
            if (i > 0 && i % TYPE(SUBS) == 0) {
                b = s;
                s += TYPE(HEAD);
            }
            codes_prefetch(s, false);
            convert_sub(at, b, s);
        }
    }
}

/* 32 rows of K: the converted sub-block at s. */
TILE_INLINE void bytes_sub(float *c, const int32_t *a, const char *s, const int mr)
{
    const int sides = TILE_SIDES(mr, DOTS_BYTES);

#pragma GCC unroll 2
    for (int side = 0; side < 2; side += sides) {
#pragma GCC unroll 2
        for (int h = 0; h < TYPE(HALVES); h++) {
            const float *scale = (const float *)(s + BYTES_SCALES) + KERN_PANEL * h;
            const float *min = (const float *)(s + BYTES_MINS) + KERN_PANEL * h;
            __m256i dot[2][TILE_MR_MAX];

            dots(dot, a, s, h, side, mr, DOTS_BYTES);
#pragma GCC unroll 2
            for (int x = 0; x < sides; x++) {
                const int col = 8 * (side + x);

                add_dots(NULL, c + col, a, dot[x], _mm256_loadu_ps(scale + col),
                         _mm256_loadu_ps((TYPE(MIN) ? min : scale) + col), h, mr);
            }
        }
    }
}

TILE_INLINE void bytes_run(const struct kern_gemm_tile *t, const int mr)
{
    const char *s = t->b;
    const int32_t *a = t->a;
    struct tile_rows rows;
    float *c = rows_begin(&rows, t, mr);

    for (int64_t left = t->k; left > 0; left -= KERN_SUB) {
        bytes_sub(c, a, s, mr);
        a += KERN_A_I8_WORDS * mr;
        s += BYTES_SUB;
    }
    rows_end(c, t, mr);
}

#define BYTES_FUNCTION(mr, np)                                                           \
    static void tile_##mr##x##np##_bytes(const struct kern_gemm_tile *t)                 \
    {                                                                                    \
        bytes_run(t, mr);                                                                \
    }
#define BYTES_ENTRY(mr, np) [mr - 1] = tile_##mr##x##np##_bytes,
TILE_SET(BYTES_FUNCTION)
static const kern_gemm_fn bytes_table[TILE_MR_MAX] = {TILE_SET(BYTES_ENTRY)};

static void bytes_dispatch(const struct kern_gemm_tile *t)
{
    if (t->converted)
        bytes_table[t->mr - 1](t);
    else
        tile_dispatch(t);
}

/* From this many blocks of rows on. */
#define BYTES_BLOCKS 8

#endif
