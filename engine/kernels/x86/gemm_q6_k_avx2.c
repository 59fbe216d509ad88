#include "cpu/cpu.h"

#define TYPE(x)       KERN_Q6_K_##x
#define TILE_SUMS_MIN 8
#include "kernels/x86/gemm_quant_avx2.h"

const struct kern_variant kern_gemm_q6_k_avx2 = {
    .name = "avx2",
    .op = KERN_GEMM_Q6_K,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
