/* Attention over f16 keys and values, each row by itself, so that its bits do not
 * depend on its company. */
#include "cpu/cpu.h"

#define ATTN_BATCH_INVARIANT 1
#include "kernels/x86/attn_load_f16_avx512.h"
#include "kernels/x86/attn_avx512.h"

const struct kern_variant kern_attn_f16_batch_invariant_avx512 = {
    .name = "avx512-batch-invariant",
    .op = KERN_ATTN_F16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_run,
};
