/* kernels/x86/load_float_avx512.h - how a tile of f32 products reads weights of the type FLOAT
 * and widens them exactly: for gemm_tile_avx512.h, which is included after it.
 *
 * Of bf16 a 32-bit lane holds rows (even, odd) of K. The even row is the lane shifted left by
 * 16; the odd row is the lane with its low half cleared, which a masked load does without
 * occupying an arithmetic port. Where VDPBF16PS runs at half the rate of the f32
 * multiply-add this is also the fastest way to compute with bf16 weights. */
#ifndef KERNELS_X86_LOAD_FLOAT_AVX512_H
#define KERNELS_X86_LOAD_FLOAT_AVX512_H

#include <immintrin.h>

#include "kernels/kern.h"

enum {
    LOAD_F32_ROWS = 1,
    LOAD_F16_ROWS = 1,
    LOAD_BF16_ROWS = 2,
    LOAD_F32_BYTES = 64,
    LOAD_F16_BYTES = 32,
    LOAD_BF16_BYTES = 64
};
#define LOAD_F32_VEC(b, j) _mm512_loadu_ps((b) + (j)*64)
#define LOAD_F16_VEC(b, j)                                                               \
    _mm512_cvtph_ps(_mm256_loadu_si256((const void *)((b) + (j)*32)))
#define LOAD_BF16_VEC(b, j)                                                              \
    ((j) == 0 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(b), 16))        \
              : _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(0xaaaaaaaau, b)))

#define TILE_STEP_ROWS  KERN_PASTE(LOAD_, FLOAT, _ROWS)
#define TILE_K_STEP     TILE_STEP_ROWS
#define TILE_STEP_BYTES KERN_PASTE(LOAD_, FLOAT, _BYTES)
#define TILE_LOAD(b, j) KERN_PASTE(LOAD_, FLOAT, _VEC)(b, j)
#define TILE_FMA        TILE_FMA_F32
#define TILE_FMA_AT     TILE_FMA_F32_AT

#endif
