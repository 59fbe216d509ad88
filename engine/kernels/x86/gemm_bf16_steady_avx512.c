/* As gemm_bf16_avx512.c, with one sum for every element of C: slower where rows are few and
 * their sums wait for each other, the same bits however a product is cut. */
#include "cpu/cpu.h"

#define TILE_SUMS_MIN   0
#define TILE_STEP_ROWS  2
#define TILE_K_STEP     2
#define TILE_STEP_BYTES 64
#define TILE_LOAD(b, j)                                                                  \
    ((j) == 0 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(b), 16))        \
              : _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(0xaaaaaaaau, b)))
#define TILE_FMA    TILE_FMA_F32
#define TILE_FMA_AT TILE_FMA_F32_AT
#include "kernels/x86/gemm_tile_avx512.h"

const struct kern_variant kern_gemm_bf16_steady_avx512 = {
    .name = "avx512-steady",
    .op = KERN_GEMM_BF16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .steady = true,
    .fn.gemm = tile_dispatch,
    .rows = TILE_ROWS,
    .vec_cols = 16,
    .error = KERN_ERROR_F32,
    .a_format = KERN_A_F32,
};
