/* Attention over f16 keys and values. */
#include "cpu/cpu.h"

#define ATTN_BATCH_INVARIANT 0
#include "kernels/x86/attn_load_f16_avx512.h"
#include "kernels/x86/attn_avx512.h"

const struct kern_variant kern_attn_f16_avx512 = {
    .name = "avx512",
    .op = KERN_ATTN_F16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.attn = attn_run,
};
