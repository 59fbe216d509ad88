/* Attention over f32 keys and values. */
#include "cpu/cpu.h"

#define ATTN_ELEM         float
#define ATTN_STRIDE(hd)   (hd)
#define ATTN_SCALE(p, hd) 1.0f
#define ATTN_LOAD(p)      _mm256_loadu_ps(p)
#define ATTN_LOAD_N(p, n) _mm256_maskload_ps(p, vec_mask(n))
#include "kernels/x86/attn_avx2.h"

const struct kern_variant kern_attn_f32_avx2 = {
    .name = "avx2",
    .op = KERN_ATTN_F32,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_run,
};
