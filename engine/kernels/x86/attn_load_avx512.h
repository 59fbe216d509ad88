/* kernels/x86/attn_load_avx512.h - how attn_avx512.h reads keys and values of the type KV. */
#ifndef KERNELS_ATTN_LOAD_AVX512_H
#define KERNELS_ATTN_LOAD_AVX512_H

#include <immintrin.h>

#include "kernels/x86/attn_kv.h"

#define LOAD_F32(m, p) _mm512_maskz_loadu_ps(m, p)
#define LOAD_F16(m, p) _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p))
#define LOAD_BF16(m, p)                                                                  \
    _mm512_castsi512_ps(                                                                 \
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16))
#define LOAD_Q8(m, p) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(m, p)))

/* All sixteen, in their order. */
#define LOAD_ALL_F32(p)  _mm512_loadu_ps(p)
#define LOAD_ALL_F16(p)  _mm512_cvtph_ps(_mm256_loadu_epi16(p))
#define LOAD_ALL_BF16(p) LOAD_BF16(0xffff, p)
#define LOAD_ALL_Q8(p)                                                                   \
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((void *)(p))))

#define ATTN_LOAD(m, p) KERN_PASTE(LOAD_, KV, )(m, p)

/* Of bf16 a pair of vectors is loaded as the elements of even number and those of odd number:
 * to shift and to mask take half the operations of widening them in their order. */
#define ATTN_SPLIT (ATTN_TYPE == KERN_KV_BF16)

/* Thirty-two elements as f32: in their order, or split. */
static inline __attribute__((always_inline)) void attn_load_pair(__m512 x[2],
                                                                 const ATTN_ELEM *p)
{
    if (ATTN_SPLIT) {
        __m512i both = _mm512_loadu_si512(p);

        x[0] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
        x[1] = _mm512_castsi512_ps(
            _mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)));
    } else {
        x[0] = KERN_PASTE(LOAD_ALL_, KV, )(p);
        x[1] = KERN_PASTE(LOAD_ALL_, KV, )(p + 16);
    }
}

/* Thirty-two numbers in their order, to the order of attn_load_pair() and back. */
static inline __attribute__((always_inline)) void attn_split(__m512 x[2])
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    __m512 first = x[0];

    if (!ATTN_SPLIT)
        return;
    x[0] = _mm512_permutex2var_ps(first, even, x[1]);
    x[1] = _mm512_permutex2var_ps(first, odd, x[1]);
}
static inline __attribute__((always_inline)) void attn_join(__m512 x[2])
{
    const __m512i low =
        _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512 first = x[0];

    if (!ATTN_SPLIT)
        return;
    x[0] = _mm512_permutex2var_ps(first, low, x[1]);
    x[1] = _mm512_permutex2var_ps(first, high, x[1]);
}

#endif
