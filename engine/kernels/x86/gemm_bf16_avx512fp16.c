/* bf16 weights in half precision, in chains short enough that the error stays below that
 * of rounding the activations to bf16. Relaxed precision. */
#include "cpu/cpu.h"

#define CHAIN_FMA(c, x, b) __asm__("vfmadd231ph %2, %1, %0" : "+v"(c) : "v"(x), "v"(b))
#include "kernels/x86/chain_f16_avx512.h"

const struct kern_variant kern_gemm_bf16_avx512fp16 = {
    .name = "avx512fp16",
    .op = KERN_GEMM_BF16,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512FP16),
    .precision = KERN_RELAXED,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 32,
    .error = 0x1p-9,
    .a_format = KERN_A_F16_TWICE,
    .a_words = chain_a_words,
    .a_scale = chain_a_scale,
    .convert = chain_convert,
};
