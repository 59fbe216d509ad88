#define TYPE KERN_Q6_K
#include "kernels/ref/gemm_quant_ref.h"

const struct kern_variant kern_gemm_q6_k_ref = {
    .name = "ref",
    .op = KERN_GEMM_Q6_K,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = gemm_exact,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
