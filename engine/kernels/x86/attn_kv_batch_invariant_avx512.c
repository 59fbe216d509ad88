/* Attention over keys and values of the type KV, each row by itself, so that its bits do not
 * depend on its company. */
#include "cpu/cpu.h"

#define ATTN_BATCH_INVARIANT 1
#include "kernels/x86/attn_load_avx512.h"
#include "kernels/x86/attn_avx512.h"

const struct kern_variant KERN_KV_VARIANT = {
    .name = "avx512-batch-invariant",
    .op = KERN_PASTE(KERN_ATTN_, KV, ),
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_run,
};
