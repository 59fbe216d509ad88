#include "kernels/ref/gemm_quant_ref.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "ref",
    .op = KERN_QUANT_OP,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = gemm_exact,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
