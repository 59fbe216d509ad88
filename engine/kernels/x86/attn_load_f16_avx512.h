/* kernels/x86/attn_load_f16_avx512.h - what attn_avx512.h needs for f16 keys and values. */
#ifndef KERNELS_ATTN_LOAD_F16_AVX512_H
#define KERNELS_ATTN_LOAD_F16_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define ATTN_ELEM         uint16_t
#define ATTN_STRIDE(hd)   (hd)
#define ATTN_SCALE(p, hd) ((void)(hd), 1.0f)
#define ATTN_LOAD(m, p)   _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p))

/* Thirty-two elements in their order. */
static inline __attribute__((always_inline)) void attn_load_pair(__m512 x[2],
                                                                 const uint16_t *p)
{
    x[0] = _mm512_cvtph_ps(_mm256_loadu_epi16(p));
    x[1] = _mm512_cvtph_ps(_mm256_loadu_epi16(p + 16));
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
