#define WEIGHT             float
#define WEIGHT_AT(b, k, c) (b)[(k)*KERN_PANEL + (c)]
#include "kernels/ref/gemm_ref.h"

const struct kern_variant kern_gemm_f32_ref = {
    .name = "ref",
    .op = KERN_GEMM_F32,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = gemm_ref,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
