#include "cpu/cpu.h"

#include "kernels/x86/a_group_avx2.h"
#include "kernels/x86/dots_avx2.h"
#include "kernels/x86/gemm_a8_avx2.h"
#include "kernels/x86/gemm_a8_bytes_avx2.h"

const struct kern_variant KERN_QUANT_VARIANT = {
    .name = "avx2-a8",
    .op = KERN_QUANT_OP,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_A8,
    .batch_invariant = true,
    .fn.gemm = bytes_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 8,
    .error = KERN_ERROR_A8,
    .a_format = KERN_A_I8,
    .a_group = a_group_avx2,
    .convert = KERN_QUANT(BITS) < 8 ? bytes_convert : NULL,
    .convert_blocks = BYTES_BLOCKS,
};
