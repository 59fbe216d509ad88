#include "cpu/cpu.h"

#define TYPE(x)   KERN_Q4_0_##x
#define TILE_DOTS (mr == 1 ? dots_sdot : dots_smmla)
#include "kernels/arm/dots_neoni8mm.h"
#include "kernels/arm/gemm_a8_neon.h"

const struct kern_variant kern_gemm_q4_0_a8_neoni8mm = {
    .name = "neoni8mm-a8",
    .op = KERN_GEMM_Q4_0,
    .isa = CPU_MASK(NEON) | CPU_MASK(NEONDOT) | CPU_MASK(NEONI8MM),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
};
