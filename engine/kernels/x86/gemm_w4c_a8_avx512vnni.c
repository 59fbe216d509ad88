/* Products of 8 bits where the weights of a column share their scale (kernels/panel.h): only
 * sums of integers in the loop, so that twice as many rows fit the registers as in
 * gemm_a8_avx512vnni.h. */
#include "cpu/cpu.h"

#define QUANT W4C
#include "kernels/x86/a_group_avx512.h"
#include "kernels/x86/codes_avx512.h"

#define TILE_MR_MAX      24
#define TILE_SPARSE_ROWS 2
#define TILE_ROWS                                                                        \
    {                                                                                    \
        24                                                                               \
    }
#define TILE_SET(X) TILE_UP_24(X, 1)

/* The sets of sums that the codes of a sub-block take in turn, to hide the latency of
 * VPDPBUSD where there are few rows. */
#define TILE_SETS(mr) ((mr) <= 2 ? 4 : (mr) <= 4 ? 2 : 1)

/* In place, for the reason given in gemm_tile_avx512.h. *a is in every lane. */
#define TILE_DOT_AT(c, a, w)                                                             \
    __asm__("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(a)), "v"(w))

/* C from the sums over the block at b. `first` and `last` are the words of its first and last
 * sub-block in A. */
TILE_INLINE void block_end(const struct kern_gemm_tile *t, __m512i sum[4][TILE_MR_MAX],
                           const int32_t *first, const int32_t *last, const char *b,
                           bool accumulate, const int mr)
{
    const __m512 d = f16_row(b), min = f16_row(b + 2 * KERN_PANEL);
    const int sets = TILE_SETS(mr);

#pragma GCC unroll 24
    for (int i = 0; i < mr; i++) {
        float scale = ((const float *)first)[KERN_A_I8_SCALE * mr + i];
        int32_t a_sum =
            last[(KERN_A_I8_SUM + 1) * mr + i] - first[KERN_A_I8_SUM * mr + i];
        float *to = t->c + i * t->ldc;
        __m512 c = accumulate ? _mm512_loadu_ps(to) : _mm512_setzero_ps();

#pragma GCC unroll 4
        for (int x = 1; x < sets; x++)
            sum[0][i] = _mm512_add_epi32(sum[0][i], sum[x][i]);
        c = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[0][i]),
                            _mm512_mul_ps(d, _mm512_set1_ps(scale)), c);
        c = _mm512_fnmadd_ps(min, _mm512_set1_ps(scale * (float)a_sum), c);
        _mm512_storeu_ps(to, c);
    }
}

TILE_INLINE void tile_run(const struct kern_gemm_tile *t, const int mr, const int np)
{
    const int sets = TILE_SETS(mr);
    const char *unit = t->b, *next = t->next;
    const int32_t *a = t->a;
    bool accumulate = t->accumulate;

    (void)np;
    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t n = (left < t->k_unit ? left : t->k_unit) / KERN_SUB;
        const char *s = unit + TYPE(HEAD);
        const int32_t *first = a;
        __m512i sum[4][TILE_MR_MAX];

#pragma GCC unroll 4
        for (int x = 0; x < sets; x++)
#pragma GCC unroll 24
            for (int i = 0; i < mr; i++)
                sum[x][i] = _mm512_setzero_si512();
        for (; n > 0; n--, s += TYPE(SUB), a += KERN_A_I8_WORDS * mr) {
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                __m512i w = codes(s, j);

#pragma GCC unroll 24
                for (int i = 0; i < mr; i++)
                    TILE_DOT_AT(sum[j % sets][i], &a[j * mr + i], w);
            }
            codes_prefetch(s, mr <= TILE_SPARSE_ROWS && t->sparse);
            next = codes_prefetch_next(next, t->next_step);
        }
        block_end(t, sum, first, a - KERN_A_I8_WORDS * mr, unit, accumulate, mr);
        accumulate = true;
    }
}

TILE_DISPATCH

const struct kern_variant kern_gemm_w4c_a8_avx512vnni = {
    .name = "avx512vnni-a8",
    .op = KERN_GEMM_W4C,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512VNNI),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = KERN_ERROR_A8_ROW,
    .a_format = KERN_A_I8,
    .a_group = a_group_avx512,
};
