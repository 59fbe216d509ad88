#include "cpu/cpu.h"

#define TILE_SUMS_MIN 8
#include "kernels/x86/gemm_quant_avx2.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "avx2",
    .op = KERN_QUANT_OP,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
