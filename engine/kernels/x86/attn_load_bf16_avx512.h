/* kernels/x86/attn_load_bf16_avx512.h - what attn_avx512.h needs for bf16 keys and
 * values. */
#ifndef KERNELS_ATTN_LOAD_BF16_AVX512_H
#define KERNELS_ATTN_LOAD_BF16_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define ATTN_ELEM         uint16_t
#define ATTN_STRIDE(hd)   (hd)
#define ATTN_SCALE(p, hd) ((void)(hd), 1.0f)
#define ATTN_LOAD(m, p)                                                                  \
    _mm512_castsi512_ps(                                                                 \
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16))
/* Thirty-two elements as f32, first those of even number, then those of odd number: to shift and
 * to mask take half the operations of widening them in their order. */
static inline __attribute__((always_inline)) void attn_load_pair(__m512 x[2],
                                                                 const uint16_t *p)
{
    __m512i both = _mm512_loadu_si512(p);

    x[0] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    x[1] =
        _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)));
}

/* Thirty-two numbers in their order, to the order of attn_load_pair() and back. */
static inline __attribute__((always_inline)) void attn_split(__m512 x[2])
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    __m512 first = x[0];

    x[0] = _mm512_permutex2var_ps(first, even, x[1]);
    x[1] = _mm512_permutex2var_ps(first, odd, x[1]);
}
static inline __attribute__((always_inline)) void attn_join(__m512 x[2])
{
    const __m512i low =
        _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512 first = x[0];

    x[0] = _mm512_permutex2var_ps(first, low, x[1]);
    x[1] = _mm512_permutex2var_ps(first, high, x[1]);
}

#endif
