/* Quantised weights by tile registers of bf16. The weights of a slice are converted to panels of
 * bf16 once for all its rows, so that no scale is left to multiply by. Tiles of bytes multiply
 * twice as fast, but their sums of 32 rows of K each have scales of their own: to convert, scale
 * and add 16 of them takes longer than to multiply them, and no less time than VPDPBUSD takes.
 * Activations and weights are rounded to bf16. Relaxed precision. */
#include "cpu/cpu.h"

#include "kernels/x86/quant_cursor.h"
#include "kernels/x86/tile_amxbf16.h"
#include "kernels/x86/vec_avx512.h"

#define SUB_BYTES  (KERN_SUB * KERN_PANEL * 2) /* of a sub-block in bf16 */
#define CHUNK_SUBS 8                           /* converted at once without scratch */

/* Byte i of each lane, as a float. */
TILE_INLINE __m512 byte_of(__m512i w, const int i)
{
    if (i < 3)
        w = _mm512_and_si512(_mm512_srli_epi32(w, 8 * i), _mm512_set1_epi32(255));
    else
        w = _mm512_srli_epi32(w, 24);
    return _mm512_cvtepi32_ps(w);
}

TILE_INLINE void sub_to_bf16(char *to, const struct quant_cursor *c)
{
    const __m512i pairs =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                         7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

#pragma GCC unroll 2
    for (int h = 0; h < TYPE(HALVES); h++) {
        const __m512 scale = scales(c->block, c->sub, h);
        const __m512 low = TYPE(MIN) ? mins(c->block, c->sub, h)
                                     : _mm512_mul_ps(scale, _mm512_set1_ps(TYPE(ZERO)));

#pragma GCC unroll 8
        for (int j = 8 / TYPE(HALVES) * h; j < 8 / TYPE(HALVES) * (h + 1); j++) {
            const __m512i w = codes(c->sub, j);
            __m512 x[4];

#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                x[i] = _mm512_fmsub_ps(byte_of(w, i), scale, low);
#pragma GCC unroll 2
            for (int i = 0; i < 4; i += 2, to += 64)
                _mm512_store_si512(
                    to, _mm512_permutexvar_epi16(
                            pairs, (__m512i)_mm512_cvtne2ps_pbh(x[i + 1], x[i])));
        }
    }
}

/* The next n sub-blocks of the panel. */
static void convert_subs(char *to, struct quant_cursor *c, const struct kern_gemm_tile *t,
                         int64_t n)
{
    for (; n > 0; n--, to += SUB_BYTES) {
        quant_next(c, t);
        sub_to_bf16(to, c);
    }
}

static void convert(const struct kern_gemm_tile *t, void *to, float *col_factor)
{
    (void)col_factor;
    for (int p = 0; p < t->np; p++) {
        struct quant_cursor c = quant_cursor(t, p);

        convert_subs((char *)to + (size_t)p * t->k * KERN_PANEL * 2, &c, t,
                     t->k / KERN_SUB);
    }
}

/* Multiply with weights in bf16, n panels of k rows one behind the other. */
static void multiply(const struct kern_gemm_tile *t, const char *b, int64_t k)
{
    struct kern_gemm_tile u = *t;

    u.b = b;
    u.k = u.k_unit = k;
    u.b_panel_bytes = (size_t)k * KERN_PANEL * 2;
    amx_gemm(&u);
}

static void gemm(const struct kern_gemm_tile *t)
{
    _Alignas(64) char chunk[2 * CHUNK_SUBS * SUB_BYTES];
    struct kern_gemm_tile u = *t;
    struct quant_cursor c[2];

    if (t->converted) {
        multiply(t, t->b, t->k);
        return;
    }
    for (int p = 0; p < t->np; p++)
        c[p] = quant_cursor(t, p);
    for (int64_t at = 0, n; at < t->k / KERN_SUB; at += n) {
        n = t->k / KERN_SUB - at < CHUNK_SUBS ? t->k / KERN_SUB - at : CHUNK_SUBS;
        for (int p = 0; p < t->np; p++)
            convert_subs(chunk + (size_t)(p * n) * SUB_BYTES, &c[p], t, n);
        u.a = (const char *)t->a + at * t->mr * KERN_SUB * 2;
        u.tiles_kept = t->tiles_kept || at + n < t->k / KERN_SUB;
        multiply(&u, chunk, n * KERN_SUB);
        u.tiles_ready = u.accumulate = true;
    }
}

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "amxbf16",
    .op = KERN_QUANT_OP,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512BF16) | CPU_MASK(AMXBF16),
    .precision = KERN_RELAXED,
    .fn.gemm = gemm,
    .rows = AMX_MICRO_KERNELS,
    .vec_cols = 16,
    .error = 0x1p-8,
    .a_words = vec_bf16_words,
    .a_format = KERN_A_BF16_ROWS,
    .convert = convert,
    .convert_blocks = 2,
};
