/* One sum for each element: the same bits however a product is cut. */
#include "cpu/cpu.h"

#define TILE_SUMS_MIN 0
#include "kernels/x86/gemm_quant_avx2.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "avx2-batch-invariant",
    .op = KERN_QUANT_OP,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
