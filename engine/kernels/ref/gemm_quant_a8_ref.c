#include "kernels/ref/gemm_quant_ref.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "ref-a8",
    .op = KERN_QUANT_OP,
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = gemm_a8,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
};
