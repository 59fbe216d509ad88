/* f32 weights: one row of a panel is one vector. */
#include "cpu/cpu.h"

#define TILE_STEP_ROWS    1
#define TILE_K_STEP       1
#define TILE_STEP_BYTES   64
#define TILE_LOAD(b, j)   _mm512_loadu_ps((b) + (j)*64)
#define TILE_FMA(x, b, c) _mm512_fmadd_ps(x, b, c)
#include "kernels/x86/gemm_tile_avx512.h"

const struct kern_variant kern_gemm_f32_avx512 = {
    .name = "avx512",
    .op = KERN_GEMM_F32,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.gemm = tile_dispatch,
    .mr_max = TILE_MR_MAX,
    .np_max = TILE_NP_MAX,
    .a_format = KERN_A_F32,
};
