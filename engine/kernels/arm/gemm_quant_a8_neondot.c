#include "cpu/cpu.h"

#define TILE_DOTS(step) sdot_##step
#include "kernels/arm/gemm_a8_neon.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "neondot-a8",
    .op = KERN_QUANT_OP,
    .isa = CPU_MASK(NEON) | CPU_MASK(NEONDOT),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
};
