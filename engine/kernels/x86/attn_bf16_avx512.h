/* kernels/x86/attn_bf16_avx512.h - attn_avx512.h over bf16 keys and values. */
#ifndef KERNELS_ATTN_BF16_AVX512_H
#define KERNELS_ATTN_BF16_AVX512_H

#include <stdint.h>

#define ATTN_ELEM uint16_t
#define ATTN_LOAD(m, p)                                                                  \
    _mm512_castsi512_ps(                                                                 \
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16))
#include "kernels/x86/attn_avx512.h"

#endif
