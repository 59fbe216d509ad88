#include "cpu/cpu.h"

#define INT4_SIGNED 0
#include "experiments/study/int4/int4_avx2.h"

const struct kern_variant study_int4_unsigned_avx2 = {
    .name = "avx2-unsigned",
    .op = KERN_GEMM_Q4_0,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
};
