#define WEIGHT             uint16_t
#define WEIGHT_AT(b, k, c) kern_bf16_to((b)[((k) / 2 * KERN_PANEL + (c)) * 2 + (k) % 2])
#include "kernels/ref/gemm_ref.h"

const struct kern_variant kern_gemm_bf16_ref = {
    .name = "ref",
    .op = KERN_GEMM_BF16,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = gemm_ref,
    .rows = {4, 4},
    .vec_cols = 1,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
