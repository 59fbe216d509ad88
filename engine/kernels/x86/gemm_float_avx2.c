/* Weights of the type FLOAT, with f32 activations and sums. */
#include "cpu/cpu.h"

#define TILE_SUMS_MIN 8
#include "kernels/x86/load_float_avx2.h"
#include "kernels/x86/gemm_tile_avx2.h"

TILE_DISPATCH

const struct kern_variant KERN_FLOAT_VARIANT = {
    .name = "avx2",
    .op = KERN_PASTE(KERN_GEMM_, FLOAT, ),
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
    .prefetches_next = true,
};
