/* kernels/x86/load_f16_avx2.h - f16 weights, widened exactly as they are loaded. */
#ifndef KERNELS_X86_LOAD_F16_AVX2_H
#define KERNELS_X86_LOAD_F16_AVX2_H

#include <immintrin.h>

#define TILE_STEP_ROWS  1
#define TILE_STEP_BYTES 32
#define TILE_LOAD(b, j, h)                                                               \
    _mm256_cvtph_ps(_mm_loadu_si128((const void *)((b) + 16 * (h))))

#endif
