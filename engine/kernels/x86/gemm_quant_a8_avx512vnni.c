#include "cpu/cpu.h"

#include "kernels/x86/a_group_avx512.h"
#include "kernels/x86/gemm_a8_avx512vnni.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "avx512vnni-a8",
    .op = KERN_QUANT_OP,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512VNNI),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
    .a_group = a_group_avx512,
};
