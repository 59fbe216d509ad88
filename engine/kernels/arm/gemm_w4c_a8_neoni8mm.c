#include "cpu/cpu.h"

#define QUANT           W4C
#define TILE_DOTS(step) (mr == 1 ? sdot_##step : smmla_##step)
#include "kernels/arm/dots_neoni8mm.h"
#include "kernels/arm/gemm_w4c_a8_neon.h"

const struct kern_variant kern_gemm_w4c_a8_neoni8mm = {
    .name = "neoni8mm-a8",
    .op = KERN_GEMM_W4C,
    .isa = CPU_MASK(NEON) | CPU_MASK(NEONDOT) | CPU_MASK(NEONI8MM),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_A8_ROW,
    .a_format = KERN_A_I8,
};
