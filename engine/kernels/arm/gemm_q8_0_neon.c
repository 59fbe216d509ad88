#include "cpu/cpu.h"

#define TYPE(x) KERN_Q8_0_##x
#include "kernels/arm/gemm_quant_neon.h"

const struct kern_variant kern_gemm_q8_0_neon = {
    .name = "neon",
    .op = KERN_GEMM_Q8_0,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
