#include "cpu/cpu.h"

#define TILE_STEP_ROWS     1
#define TILE_STEP_BYTES    64
#define TILE_LOAD(b, j, q) vld1q_f32((const float *)(b) + 16 * (j) + 4 * (q))
#include "kernels/arm/gemm_tile_neon.h"

const struct kern_variant kern_gemm_f32_neon = {
    .name = "neon",
    .op = KERN_GEMM_F32,
    .isa = CPU_MASK(NEON),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 4,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
