#define INT4_SIGNED 0
#include "experiments/study/int4/int4_ref.h"

const struct kern_variant study_int4_unsigned_ref = {
    .name = "ref-unsigned",
    .op = KERN_GEMM_Q4_0,
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = gemm_straight,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
};
