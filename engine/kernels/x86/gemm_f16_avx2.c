/* f16 weights, widened exactly as they are loaded. */
#include "cpu/cpu.h"

#define TILE_STEP_ROWS  1
#define TILE_STEP_BYTES 32
#define TILE_LOAD(b, j, h)                                                               \
    _mm256_cvtph_ps(_mm_loadu_si128((const void *)((b) + 16 * (h))))
#include "kernels/x86/gemm_tile_avx2.h"

const struct kern_variant kern_gemm_f16_avx2 = {
    .name = "avx2",
    .op = KERN_GEMM_F16,
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
