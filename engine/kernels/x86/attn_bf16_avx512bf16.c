/* Attention over bf16 keys and values, of many rows by the BF16 dot product: queries and
 * weights of the softmax are rounded to bf16. Relaxed precision. */
#include "cpu/cpu.h"

#define ATTN_BATCH_INVARIANT 0
#define ATTN_DOT_ROWS_MIN    6
#define ATTN_SCALED          0
#define ATTN_LOAD_BF16(m, p) _mm512_maskz_loadu_epi16(m, p)
#include "kernels/x86/attn_load_bf16_avx512.h"
#include "kernels/x86/attn_avx512bf16.h"

const struct kern_variant kern_attn_bf16_avx512bf16 = {
    .name = "avx512bf16",
    .op = KERN_ATTN_BF16,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512BF16),
    .precision = KERN_RELAXED,
    .fn.attn = attn_dot_run,
};
