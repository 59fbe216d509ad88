#define TYPE KERN_Q4_1
#include "kernels/ref/gemm_quant_ref.h"

const struct kern_variant kern_gemm_q4_1_ref = {
    .name = "ref",
    .op = KERN_GEMM_Q4_1,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = gemm_exact,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
