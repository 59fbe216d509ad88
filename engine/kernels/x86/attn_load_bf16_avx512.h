/* kernels/x86/attn_load_bf16_avx512.h - what attn_avx512.h needs for bf16 keys and
 * values. */
#ifndef KERNELS_ATTN_LOAD_BF16_AVX512_H
#define KERNELS_ATTN_LOAD_BF16_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define ATTN_ELEM uint16_t
#define ATTN_LOAD(m, p)                                                                  \
    _mm512_castsi512_ps(                                                                 \
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16))

#endif
