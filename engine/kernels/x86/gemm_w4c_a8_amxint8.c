/* Products of 8 bits by tile registers (AMX) where the weights of a column share their scale
 * (kernels/panel.h): tiles sum integers over all rows of a block. */
#include "cpu/cpu.h"

#define QUANT W4C
#include "kernels/x86/a_group_avx512.h"
#include "kernels/x86/quant_cursor.h"
#include "kernels/x86/tile_amx.h"

/* The tiles, by number: sums of rows 0 to 15 of panel 0 and 1, and of the other rows; A; B. */
enum { AMX_C00, AMX_C01, AMX_C10, AMX_C11, AMX_A0, AMX_A1, AMX_B0, AMX_B1 };

#define AMX_DOT(c, a, b)                                                                 \
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b))

struct sums {
    _Alignas(
        64) int32_t at[2][AMX_ROWS][KERN_PANEL]; /* of a panel: rows from 0 and 16 on */
};

static void configure(int mr)
{
    const int first = mr < AMX_ROWS ? mr : AMX_ROWS, rest = mr - first;
    struct amx_config c = {.palette = 1};

    for (int i = 0; i < AMX_TILES; i++) {
        c.rows[i] = (uint8_t)(i >= AMX_B0                                   ? 8
                              : i == AMX_C10 || i == AMX_C11 || i == AMX_A1 ? rest
                                                                            : first);
        c.row_bytes[i] = (uint16_t)(!c.rows[i]                   ? 0
                                    : i == AMX_A0 || i == AMX_A1 ? KERN_SUB
                                                                 : 64);
    }
    AMX_CONFIGURE(c);
}

/* The codes of the sub-block at s as bytes. */
AMX_INLINE void unpack(char *w, const char *s)
{
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        _mm512_store_si512(w + 64 * j, codes(s, j));
}

/* n sub-blocks from `a` and `s` on, the second panel's panel_bytes behind. */
AMX_INLINE void multiply(const char *a, const char *s, size_t panel_bytes, int64_t n,
                         int mr, const bool two_a, const bool two_b)
{
    _Alignas(64) char w[2][2][8 * 64];

    for (int64_t i = 0; i < n; i++, a += KERN_A_I8_WORDS * 4 * mr, s += TYPE(SUB)) {
        unpack(w[i % 2][0], s);
        if (two_b)
            unpack(w[i % 2][1], s + panel_bytes);
        AMX_LOAD(AMX_B0, w[i % 2][0], 64);
        AMX_LOAD(AMX_A0, a, KERN_SUB);
        AMX_DOT(AMX_C00, AMX_A0, AMX_B0);
        if (two_b) {
            AMX_LOAD(AMX_B1, w[i % 2][1], 64);
            AMX_DOT(AMX_C01, AMX_A0, AMX_B1);
        }
        if (two_a) {
            AMX_LOAD(AMX_A1, a + AMX_ROWS * KERN_SUB, KERN_SUB);
            AMX_DOT(AMX_C10, AMX_A1, AMX_B0);
        }
        if (two_a && two_b)
            AMX_DOT(AMX_C11, AMX_A1, AMX_B1);
    }
}

/* C of one panel from the sums over the block at b. `first` and `last` are the words of its first
 * and last sub-block in A. */
static void block_end(const struct kern_gemm_tile *t, float *c, const struct sums *s,
                      const int32_t *first, const int32_t *last, const char *b,
                      bool accumulate)
{
    const __m512 d = f16_row(b), min = f16_row(b + 2 * KERN_PANEL);

    for (int i = 0; i < t->mr; i++, c += t->ldc) {
        float scale = ((const float *)first)[KERN_A_I8_SCALE * t->mr + i];
        int32_t a_sum =
            last[(KERN_A_I8_SUM + 1) * t->mr + i] - first[KERN_A_I8_SUM * t->mr + i];
        __m512i dot = _mm512_load_si512(s->at[i / AMX_ROWS][i % AMX_ROWS]);
        __m512 x = accumulate ? _mm512_loadu_ps(c) : _mm512_setzero_ps();

        x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                            _mm512_mul_ps(d, _mm512_set1_ps(scale)), x);
        x = _mm512_fnmadd_ps(min, _mm512_set1_ps(scale * (float)a_sum), x);
        _mm512_storeu_ps(c, x);
    }
}

AMX_INLINE void run(const struct kern_gemm_tile *t, const bool two_a, const bool two_b)
{
    const char *unit = t->b;
    const int32_t *a = t->a;
    bool accumulate = t->accumulate;

    for (int64_t left = t->k; left > 0; left -= t->k_unit, unit += t->b_unit_bytes) {
        int64_t n = (left < t->k_unit ? left : t->k_unit) / KERN_SUB;
        const int32_t *first = a;
        struct sums sum[2];

        AMX_ZERO(AMX_C00);
        AMX_ZERO(AMX_C01);
        if (two_a) {
            AMX_ZERO(AMX_C10);
            AMX_ZERO(AMX_C11);
        }
        multiply((const char *)a, unit + TYPE(HEAD), t->b_panel_bytes, n, t->mr, two_a,
                 two_b);
        a += n * KERN_A_I8_WORDS * t->mr;
        AMX_STORE(AMX_C00, sum[0].at[0], 64);
        AMX_STORE(AMX_C01, sum[1].at[0], 64);
        if (two_a) {
            AMX_STORE(AMX_C10, sum[0].at[1], 64);
            AMX_STORE(AMX_C11, sum[1].at[1], 64);
        }
        for (int p = 0; p < (two_b ? 2 : 1); p++)
            block_end(t, t->c + p * KERN_PANEL, &sum[p], first,
                      a - KERN_A_I8_WORDS * t->mr, unit + (size_t)p * t->b_panel_bytes,
                      accumulate);
        accumulate = true;
    }
}

static void gemm(const struct kern_gemm_tile *t)
{
    if (!t->tiles_ready)
        configure(t->mr);
    if (t->mr > AMX_ROWS && t->np == 2)
        run(t, true, true);
    else if (t->mr > AMX_ROWS)
        run(t, true, false);
    else if (t->np == 2)
        run(t, false, true);
    else
        run(t, false, false);
    if (!t->tiles_kept)
        AMX_RELEASE();
}

const struct kern_variant kern_gemm_w4c_a8_amxint8 = {
    .name = "amxint8-a8",
    .op = KERN_GEMM_W4C,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AMXINT8),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = gemm,
    .rows = {2 * AMX_ROWS, 2 * AMX_ROWS},
    .vec_cols = 16,
    .error = KERN_ERROR_A8_ROW,
    .a_format = KERN_A_I8_ROWS,
    .a_group = a_group_avx512,
};
