/* bf16 weights, widened exactly, with f32 activations and f32 multiply-adds.
 *
 * A 32-bit lane holds rows (even, odd) of K. The even row is the lane shifted left by 16;
 * the odd row is the lane with its low half cleared, which a masked load does without
 * occupying an arithmetic port. Where VDPBF16PS runs at half the rate of the f32
 * multiply-add this is also the fastest way to compute with bf16 weights. */
#include "cpu/cpu.h"

#define TILE_SUMS_MIN 8
#include "kernels/x86/load_bf16_avx512.h"
#include "kernels/x86/gemm_tile_avx512.h"

TILE_DISPATCH

const struct kern_variant kern_gemm_bf16_avx512 = {
    .name = "avx512",
    .op = KERN_GEMM_BF16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
