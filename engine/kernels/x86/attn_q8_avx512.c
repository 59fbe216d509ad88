/* Attention over keys and values of 8 bits. */
#include "cpu/cpu.h"

#define ATTN_BATCH_INVARIANT 0
#include "kernels/x86/attn_load_q8_avx512.h"
#include "kernels/x86/attn_avx512.h"

const struct kern_variant kern_attn_q8_avx512 = {
    .name = "avx512",
    .op = KERN_ATTN_Q8,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.attn = attn_run,
};
