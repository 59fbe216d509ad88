#include "cpu/cpu.h"

#define QUANT         W4C
#define TILE_VPDPBUSD "%{vex%} vpdpbusd"
#include "kernels/x86/a_group_avx2.h"
#include "kernels/x86/dots_avxvnni.h"
#include "kernels/x86/gemm_w4c_a8_avx2.h"

const struct kern_variant kern_gemm_w4c_a8_avxvnni = {
    .name = "avxvnni-a8",
    .op = KERN_GEMM_W4C,
    .isa = CPU_MASK(AVX2) | CPU_MASK(AVXVNNI),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_A8_ROW,
    .a_format = KERN_A_I8,
    .a_group = a_group_avx2,
};
