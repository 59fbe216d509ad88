/* kernels/x86/load_bf16_avx512.h - how a tile of f32 products reads bf16 weights in pairs
 * of rows of K, widened: for gemm_tile_avx512.h, which is included after it. */
#ifndef KERNELS_X86_LOAD_BF16_AVX512_H
#define KERNELS_X86_LOAD_BF16_AVX512_H

#define TILE_STEP_ROWS  2
#define TILE_K_STEP     2
#define TILE_STEP_BYTES 64
#define TILE_LOAD(b, j)                                                                  \
    ((j) == 0 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(b), 16))        \
              : _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(0xaaaaaaaau, b)))
#define TILE_FMA    TILE_FMA_F32
#define TILE_FMA_AT TILE_FMA_F32_AT

#endif
