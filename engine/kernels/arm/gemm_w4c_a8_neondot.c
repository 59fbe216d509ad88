#include "cpu/cpu.h"

#define QUANT           W4C
#define TILE_DOTS(step) sdot_##step
#include "kernels/arm/gemm_w4c_a8_neon.h"

const struct kern_variant kern_gemm_w4c_a8_neondot = {
    .name = "neondot-a8",
    .op = KERN_GEMM_W4C,
    .isa = CPU_MASK(NEON) | CPU_MASK(NEONDOT),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_A8_ROW,
    .a_format = KERN_A_I8,
};
