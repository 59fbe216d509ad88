/* bf16 weights by the dot product instruction: activations are rounded to bf16, pairs
 * along K are multiplied and summed into f32. Relaxed precision. */
#include "cpu/cpu.h"

#define TILE_STEP_ROWS  1
#define TILE_K_STEP     2
#define TILE_STEP_BYTES 64
#define TILE_LOAD(b, j) _mm512_loadu_ps((b) + (j)*64)
#define TILE_FMA(x, b, c)                                                                \
    _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(x),                                \
                     (__m512bh)_mm512_castps_si512(b))
#include "kernels/x86/gemm_tile_avx512.h"

const struct kern_variant kern_gemm_bf16_avx512bf16 = {
    .name = "avx512bf16",
    .op = KERN_GEMM_BF16,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512BF16),
    .precision = KERN_RELAXED,
    .fn.gemm = tile_dispatch,
    .mr_max = TILE_MR_MAX,
    .np_max = TILE_NP_MAX,
    .a_format = KERN_A_BF16_PAIR,
};
