/* Attention over keys and values of the type KV. */
#include "cpu/cpu.h"

#define ATTN_BATCH_INVARIANT 0
#include "kernels/x86/attn_load_avx512.h"
#include "kernels/x86/attn_avx512.h"

const struct kern_variant KERN_KV_VARIANT = {
    .name = "avx512",
    .op = KERN_PASTE(KERN_ATTN_, KV, ),
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.attn = attn_run,
};
