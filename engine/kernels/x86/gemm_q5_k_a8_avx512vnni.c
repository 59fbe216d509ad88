#include "cpu/cpu.h"

#define TYPE(x) KERN_Q5_K_##x
#include "kernels/x86/gemm_a8_avx512vnni.h"

const struct kern_variant kern_gemm_q5_k_a8_avx512vnni = {
    .name = "avx512vnni-a8",
    .op = KERN_GEMM_Q5_K,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512VNNI),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
};
