#include "cpu/cpu.h"

#define TILE_DOTS(step) (mr == 1 ? sdot_##step : smmla_##step)
#include "kernels/arm/dots_neoni8mm.h"
#include "kernels/arm/gemm_a8_neon.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "neoni8mm-a8",
    .op = KERN_QUANT_OP,
    .isa = CPU_MASK(NEON) | CPU_MASK(NEONDOT) | CPU_MASK(NEONI8MM),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
};
