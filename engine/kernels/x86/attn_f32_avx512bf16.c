/* Attention over f32 keys and values, of many rows by the BF16 dot product: queries, keys,
 * values and weights of the softmax are rounded to bf16. Relaxed precision. */
#include "cpu/cpu.h"

#define KV                   F32
#define ATTN_BATCH_INVARIANT 0
#define ATTN_DOT_ROWS_MIN    9
#define ATTN_EXACT           kern_attn_f32_avx512
#define ATTN_LOAD_BF16(m, p) attn_floats_bf16(m, p)
#include "kernels/x86/attn_load_avx512.h"

/* Thirty-two floats as bf16, those outside the mask zero and not read. */
static inline __attribute__((always_inline)) __m512i attn_floats_bf16(__mmask32 m,
                                                                      const float *p)
{
    __m512 low = _mm512_maskz_loadu_ps((__mmask16)m, p);
    __m512 high = _mm512_maskz_loadu_ps((__mmask16)(m >> 16), p + 16);

    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

#include "kernels/x86/attn_avx512bf16.h"

const struct kern_variant kern_attn_f32_avx512bf16 = {
    .name = "avx512bf16",
    .op = KERN_ATTN_F32,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512BF16),
    .precision = KERN_RELAXED,
    .fn.attn = attn_dot_run,
};
