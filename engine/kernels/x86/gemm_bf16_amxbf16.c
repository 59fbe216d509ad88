/* bf16 weights by tile registers: activations are rounded to bf16. Relaxed precision. */
#include "cpu/cpu.h"

#include "kernels/x86/tile_amxbf16.h"
#include "kernels/x86/vec_avx512.h"

const struct kern_variant kern_gemm_bf16_amxbf16 = {
    .name = "amxbf16",
    .op = KERN_GEMM_BF16,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AMXBF16),
    .precision = KERN_RELAXED,
    .fn.gemm = amx_gemm,
    .rows = AMX_MICRO_KERNELS,
    .vec_cols = 16,
    .error = 0x1p-9,
    .a_words = vec_bf16_words,
    .a_format = KERN_A_BF16_ROWS,
};
