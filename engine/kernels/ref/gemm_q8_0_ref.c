#define TYPE KERN_Q8_0
#include "kernels/ref/gemm_quant_ref.h"

const struct kern_variant kern_gemm_q8_0_ref = {
    .name = "ref",
    .op = KERN_GEMM_Q8_0,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = gemm_exact,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
