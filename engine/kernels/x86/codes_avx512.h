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
    if (TYPE(BITS) < 4) {
        low = _mm512_srli_epi16(_mm512_loadu_si512(s + 64 * (j / 4)), 2 * (j % 4));
        low = _mm512_and_si512(low, _mm512_set1_epi8(3));
        if (TYPE(BITS) == 2)
            return low;
        high = _mm512_loadu_si512(s + 128);
        high = j < 2 ? _mm512_slli_epi16(high, 2 - j) : _mm512_srli_epi16(high, j - 2);
        return _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(4)));
    }
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
    if (TYPE(BOOK) != KERN_BOOK_NONE)
        low = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(
                                      (const __m128i_u *)kern_books[TYPE(BOOK)])),
                                  low);
    return low;
}

TILE_INLINE __m512 f16_row(const char *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)at));
}

/* The d (which 0) or dmin (1) of the head at b. */
TILE_INLINE __m512 head_row(const char *b, const int which)
{
    const __m256i half =
        _mm256_loadu_si256((const __m256i_u *)(b + 2 * KERN_PANEL * which));

    if (TYPE(WIDE) == 2)
        return _mm512_loadu_ps(b + 4 * KERN_PANEL * which);
    if (TYPE(WIDE))
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    return _mm512_cvtph_ps(half);
}

/* The scales of rows 16 h to 16 h + 15 of the sub-block at s of the block at b. */
TILE_INLINE __m512 scales(const char *b, const char *s, const int h)
{
    const char *at = s + TYPE(SCALES) + KERN_PANEL * (TYPE(HALVES) == 2 ? h : 0);
    __m512 d = head_row(b, 0);
    __m128i bytes;

    if (TYPE(SCALES) == 0)
        return d;
    bytes = _mm_loadu_si128((const __m128i_u *)at);
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(TYPE(MIN) ? _mm512_cvtepu8_epi32(bytes)
                                                         : _mm512_cvtepi8_epi32(bytes)));
}

/* The numbers that are subtracted from these rows, for types with a min. */
TILE_INLINE __m512 mins(const char *b, const char *s, const int h)
{
    const int half = TYPE(HALVES) == 2 ? h : 0;
    __m512 d = head_row(b, 1);
    __m128i bytes;

    if (TYPE(SCALES) == 0)
        return d;
    s += TYPE(SCALES) + KERN_PANEL * (TYPE(HALVES) + half);
    bytes = _mm_loadu_si128((const __m128i_u *)s);
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
}

#endif
