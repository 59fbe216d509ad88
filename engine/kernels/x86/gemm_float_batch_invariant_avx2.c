/* As gemm_float_avx2.c, with one sum for every element of C: slower where rows are few and
 * their sums wait for each other, the same bits however a product is cut. */
#include "cpu/cpu.h"

#define TILE_SUMS_MIN 0
#include "kernels/x86/load_float_avx2.h"
#include "kernels/x86/gemm_tile_avx2.h"

TILE_DISPATCH_FEW(KERN_PASTE(kern_gemm_, KERN_TYPE_NAME, _avx2))

const struct kern_variant KERN_FLOAT_VARIANT = {
    .name = "avx2-batch-invariant",
    .op = KERN_PASTE(KERN_GEMM_, FLOAT, ),
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
    .prefetches_next = true,
};
