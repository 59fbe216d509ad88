/* Weights of the type FLOAT, with f32 activations and sums. */
#include "cpu/cpu.h"

#define TILE_SUMS_MIN 8
#include "kernels/x86/load_float_avx512.h"
#include "kernels/x86/gemm_tile_avx512.h"

TILE_DISPATCH

const struct kern_variant KERN_FLOAT_VARIANT = {
    .name = "avx512",
    .op = KERN_PASTE(KERN_GEMM_, FLOAT, ),
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
