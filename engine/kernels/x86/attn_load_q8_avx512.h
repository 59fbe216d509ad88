/* kernels/x86/attn_load_q8_avx512.h - what attn_avx512.h needs for keys and values of 8 bits,
 * which become f32 in registers. */
#ifndef KERNELS_ATTN_LOAD_Q8_AVX512_H
#define KERNELS_ATTN_LOAD_Q8_AVX512_H

#include <immintrin.h>

#include "kernels/kv_type.h"

#define ATTN_ELEM         int8_t
#define ATTN_STRIDE(hd)   kern_q8_bytes(hd)
#define ATTN_SCALE(p, hd) kern_q8_scale(p, hd)
#define ATTN_LOAD(m, p)                                                                  \
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(m, p)))

/* Thirty-two elements in their order. */
static inline __attribute__((always_inline)) void attn_load_pair(__m512 x[2],
                                                                 const int8_t *p)
{
    const __m128i *from = (const __m128i *)p;

    x[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
    x[1] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from + 1)));
}

static inline __attribute__((always_inline)) void attn_split(__m512 x[2])
{
    (void)x;
}
static inline __attribute__((always_inline)) void attn_join(__m512 x[2])
{
    (void)x;
}

#endif
