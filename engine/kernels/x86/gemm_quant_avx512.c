#include "cpu/cpu.h"

#define TILE_SUMS_MIN 8
#include "kernels/x86/gemm_quant_avx512.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "avx512",
    .op = KERN_QUANT_OP,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
