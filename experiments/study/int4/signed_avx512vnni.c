#include "cpu/cpu.h"

#define INT4_SIGNED 1
#include "experiments/study/int4/int4_avx512vnni.h"

const struct kern_variant study_int4_signed_avx512vnni = {
    .name = "avx512vnni-signed",
    .op = KERN_GEMM_Q4_0,
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512VNNI),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
};
