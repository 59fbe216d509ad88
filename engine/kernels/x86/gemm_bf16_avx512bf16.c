/* bf16 weights by the dot product instruction: activations are rounded to bf16, pairs
 * along K are multiplied and summed into f32. Relaxed precision. */
#include "cpu/cpu.h"

#define TILE_SUMS_MIN     8
#define TILE_STEP_ROWS    1
#define TILE_K_STEP       2
#define TILE_STEP_BYTES   64
#define TILE_LOAD(b, j)   _mm512_loadu_ps((b) + (j)*64)
#define TILE_FMA(c, x, b) __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(x), "v"(b))
#define TILE_FMA_AT(c, a, b)                                                             \
    __asm__("vdpbf16ps %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(a)), "v"(b))
#include "kernels/x86/gemm_tile_avx512.h"
#include "kernels/x86/vec_avx512.h"

TILE_DISPATCH

const struct kern_variant kern_gemm_bf16_avx512bf16 = {
    .name = "avx512bf16",
    .op = KERN_GEMM_BF16,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512BF16),
    .precision = KERN_RELAXED,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = 0x1p-9,
    .a_words = vec_bf16_words,
    .a_format = KERN_A_BF16_PAIR,
};
