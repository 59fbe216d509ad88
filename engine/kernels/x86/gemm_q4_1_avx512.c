#include "cpu/cpu.h"

#define TYPE(x)       KERN_Q4_1_##x
#define TILE_SUMS_MIN 8
#include "kernels/x86/gemm_quant_avx512.h"

const struct kern_variant kern_gemm_q4_1_avx512 = {
    .name = "avx512",
    .op = KERN_GEMM_Q4_1,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
