#include "cpu/cpu.h"

#define QUANT W4C
#include "kernels/x86/a_group_avx2.h"
#include "kernels/x86/dots_avx2.h"
#include "kernels/x86/gemm_w4c_a8_avx2.h"

const struct kern_variant kern_gemm_w4c_a8_avx2 = {
    .name = "avx2-a8",
    .op = KERN_GEMM_W4C,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_A8_ROW,
    .a_format = KERN_A_I8,
    .a_group = a_group_avx2,
};
