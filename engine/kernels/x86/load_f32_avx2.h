/* kernels/x86/load_f32_avx2.h - a row of a panel of f32 weights is two vectors. */
#ifndef KERNELS_X86_LOAD_F32_AVX2_H
#define KERNELS_X86_LOAD_F32_AVX2_H

#include <immintrin.h>

#define TILE_STEP_ROWS     1
#define TILE_STEP_BYTES    64
#define TILE_LOAD(b, j, h) _mm256_loadu_ps((const float *)(b) + 8 * (h))

#endif
