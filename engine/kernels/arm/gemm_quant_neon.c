#include "cpu/cpu.h"

#include "kernels/arm/gemm_quant_neon.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "neon",
    .op = KERN_QUANT_OP,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
