/* Attention over keys and values of 8 bits, of many rows by the BF16 dot product: queries and
 * weights of the softmax are rounded to bf16, codes are exact in it. Relaxed precision. */
#include "cpu/cpu.h"

#define KV                   Q8
#define ATTN_BATCH_INVARIANT 0
#define ATTN_DOT_ROWS_MIN    5
#define ATTN_EXACT           kern_attn_q8_avx512
#define ATTN_LOAD_BF16(m, p) attn_codes_bf16(_mm256_maskz_loadu_epi8(m, p))
#include "kernels/x86/attn_load_avx512.h"

/* Thirty-two codes as bf16. */
static inline __attribute__((always_inline)) __m512i attn_codes_bf16(__m256i codes)
{
    __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes)));
    __m512 high =
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1)));

    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

#include "kernels/x86/attn_avx512bf16.h"

const struct kern_variant kern_attn_q8_avx512bf16 = {
    .name = "avx512bf16",
    .op = KERN_ATTN_Q8,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512BF16),
    .precision = KERN_RELAXED,
    .fn.attn = attn_dot_run,
};
