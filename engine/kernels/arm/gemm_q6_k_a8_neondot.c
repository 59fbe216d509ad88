#include "cpu/cpu.h"

#define TYPE(x)   KERN_Q6_K_##x
#define TILE_DOTS dots_sdot
#include "kernels/arm/gemm_a8_neon.h"

const struct kern_variant kern_gemm_q6_k_a8_neondot = {
    .name = "neondot-a8",
    .op = KERN_GEMM_Q6_K,
    .isa = CPU_MASK(NEON) | CPU_MASK(NEONDOT),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
};
