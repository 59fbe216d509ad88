/* kernels/x86/codes_avx512.h - codes and scales of quantised weights (kernels/panel.h) in
 * vectors of 16 columns.
 *
 * An including file is compiled for a type, QUANT (kernels/panel.h). */
#ifndef KERNELS_X86_CODES_AVX512_H
#define KERNELS_X86_CODES_AVX512_H

#include <immintrin.h>

#include "kernels/panel.h"
#include "kernels/tile_set.h"
#include "kernels/x86/codes_prefetch.h"

#define TYPE(x) KERN_QUANT(x)

/* The codes of rows 4 j to 4 j + 3 of the sub-block at s, a byte each, four to a column. */
TILE_INLINE __m512i codes(const char *s, const int j)
{
    __m512i low, high;

    /* Load again, and not before what comes before is done: registers are scarce. */
    __asm__ volatile("" : "+r"(s)::"memory");
    if (TYPE(BITS) == 8)
        return _mm512_loadu_si512(s + 64 * j);
    low = _mm512_loadu_si512(s + 64 * (j % 4));
    if (j >= 4)
        low = _mm512_srli_epi16(low, 4);
    low = _mm512_and_si512(low, _mm512_set1_epi8(15));
    if (TYPE(BITS) == 5) {
        high = _mm512_loadu_si512(s + 256);
        high = j < 4 ? _mm512_slli_epi16(high, 4 - j) : _mm512_srli_epi16(high, j - 4);
        low = _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(16)));
    } else if (TYPE(BITS) == 6) {
        high = _mm512_loadu_si512(s + 256 + 64 * (j / 4));
        high = j % 4 < 2 ? _mm512_slli_epi16(high, 4 - 2 * (j % 4))
                         : _mm512_srli_epi16(high, 2 * (j % 4) - 4);
        low = _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(48)));
    }
    return low;
}

TILE_INLINE __m512 f16_row(const char *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)at));
}

/* The scales of rows 16 h to 16 h + 15 of the sub-block at s of the block at b. */
TILE_INLINE __m512 scales(const char *b, const char *s, const int h)
{
    __m512 d = f16_row(b);
    __m128i bytes;

    if (TYPE(SCALES) == 0)
        return d;
    if (TYPE(HALVES) == 2) {
        bytes = _mm_loadu_si128((const __m128i_u *)(s + TYPE(SCALES) + KERN_PANEL * h));
        return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
    }
    bytes = _mm_loadu_si128((const __m128i_u *)(s + TYPE(SCALES)));
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
}

/* The number that is subtracted, for types with a min. */
TILE_INLINE __m512 mins(const char *b, const char *s)
{
    __m512 d = f16_row(b + 2 * KERN_PANEL);
    __m128i bytes;

    if (TYPE(SCALES) == 0)
        return d;
    bytes = _mm_loadu_si128((const __m128i_u *)(s + TYPE(SCALES) + KERN_PANEL));
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
}

#endif
