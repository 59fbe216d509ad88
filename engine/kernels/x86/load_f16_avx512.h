/* kernels/x86/load_f16_avx512.h - how a tile of f32 products reads f16 weights, widened:
 * for gemm_tile_avx512.h, which is included after it. */
#ifndef KERNELS_X86_LOAD_F16_AVX512_H
#define KERNELS_X86_LOAD_F16_AVX512_H

#define TILE_STEP_ROWS  1
#define TILE_K_STEP     1
#define TILE_STEP_BYTES 32
#define TILE_LOAD(b, j) _mm512_cvtph_ps(_mm256_loadu_si256((const void *)((b) + (j)*32)))
#define TILE_FMA        TILE_FMA_F32
#define TILE_FMA_AT     TILE_FMA_F32_AT

#endif
