/* kernels/x86/codes_avx2.h - codes and scales of quantised weights (kernels/panel.h) in
 * vectors of 8 columns: side 0 or 1 of a panel.
 *
 * An including file is compiled for a type, QUANT (kernels/panel.h). */
#ifndef KERNELS_X86_CODES_AVX2_H
#define KERNELS_X86_CODES_AVX2_H

#include <immintrin.h>

#include "kernels/panel.h"
#include "kernels/tile_set.h"
#include "kernels/x86/codes_prefetch.h"

#define TYPE(x) KERN_QUANT(x)

TILE_INLINE __m256i bytes_at(const char *at)
{
    return _mm256_loadu_si256((const __m256i_u *)at);
}

#define MASK(byte)                                                                       \
    __attribute__((aligned(32), unused)) = {byte, byte, byte, byte,                      \
                                            byte, byte, byte, byte}
static const uint32_t mask_3[8] MASK(0x03030303);
static const uint32_t mask_4[8] MASK(0x04040404);
static const uint32_t mask_15[8] MASK(0x0f0f0f0f);
static const uint32_t mask_16[8] MASK(0x10101010);
static const uint32_t mask_48[8] MASK(0x30303030);
static const uint32_t mask_255[8] MASK(0x000000ff);

/* The mask is read from memory each time: sums, weights and activations leave no register
 * for it. */
TILE_INLINE __m256i and_mask(__m256i x, const uint32_t mask[8])
{
    __asm__("vpand %1, %0, %0" : "+x"(x) : "m"(*(const __m256i *)mask));
    return x;
}

/* The same where `keep` says that a register may hold it: of so few rows that some are left. */
TILE_INLINE __m256i and_mask_kept(__m256i x, const uint32_t mask[8], const bool keep)
{
    return keep ? _mm256_and_si256(x, _mm256_set1_epi32((int)mask[0]))
                : and_mask(x, mask);
}

/* The codes that these numbers of 4 bits stand for. The book is read each time, as a mask is. */
TILE_INLINE __m256i look_up(__m256i number)
{
    __m256i x;

    __asm__("vbroadcasti128 %2, %0\n\tvpshufb %1, %0, %0"
            : "=&x"(x)
            : "x"(number), "m"(*(const __m128i_u *)kern_books[TYPE(BOOK)]));
    return x;
}

/* The codes of rows 4 j to 4 j + 3 of the sub-block at s, a byte each, four to a column. With
 * `keep` the compiler may keep masks, scales and what it loads for codes of other rows. */
TILE_INLINE __m256i codes(const char *s, const int j, const int side, const bool keep)
{
    __m256i low, high;

    /* Load again, and not before what comes before is done: registers are scarce. */
    if (!keep)
        __asm__ volatile("" : "+r"(s)::"memory");
    s += 32 * side;
    if (TYPE(BITS) == 8)
        return bytes_at(s + 64 * j);
    if (TYPE(BITS) < 4) {
        low = _mm256_srli_epi16(bytes_at(s + 64 * (j / 4)), 2 * (j % 4));
        low = and_mask_kept(low, mask_3, keep);
        if (TYPE(BITS) == 2)
            return low;
        high = bytes_at(s + 128);
        high = j < 2 ? _mm256_slli_epi16(high, 2 - j) : _mm256_srli_epi16(high, j - 2);
        return _mm256_or_si256(low, and_mask_kept(high, mask_4, keep));
    }
    low = bytes_at(s + 64 * (j % 4));
    if (j >= 4)
        low = _mm256_srli_epi16(low, 4);
    low = and_mask_kept(low, mask_15, keep);
    if (TYPE(BITS) == 5) {
        high = bytes_at(s + 256);
        high = j < 4 ? _mm256_slli_epi16(high, 4 - j) : _mm256_srli_epi16(high, j - 4);
        low = _mm256_or_si256(low, and_mask_kept(high, mask_16, keep));
    } else if (TYPE(BITS) == 6) {
        high = bytes_at(s + 256 + 64 * (j / 4));
        high = j % 4 < 2 ? _mm256_slli_epi16(high, 4 - 2 * (j % 4))
                         : _mm256_srli_epi16(high, 2 * (j % 4) - 4);
        low = _mm256_or_si256(low, and_mask_kept(high, mask_48, keep));
    }
    return TYPE(BOOK) == KERN_BOOK_NONE ? low : look_up(low);
}

TILE_INLINE __m256 f16_row(const char *at, const int side)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(at + 16 * side)));
}

/* The d (which 0) or dmin (1) of the head at b. */
TILE_INLINE __m256 head_row(const char *b, const int which, const int side)
{
    const __m128i half =
        _mm_loadu_si128((const __m128i_u *)(b + 2 * KERN_PANEL * which + 16 * side));

    if (TYPE(WIDE) == 2)
        return _mm256_loadu_ps((const float *)(b + 4 * KERN_PANEL * which + 32 * side));
    if (TYPE(WIDE))
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    return _mm256_cvtph_ps(half);
}

/* The scales of rows 16 h to 16 h + 15 of the sub-block at s of the block at b. */
TILE_INLINE __m256 scales(const char *b, const char *s, const int h, const int side)
{
    const char *at = s + TYPE(SCALES) + KERN_PANEL * (TYPE(HALVES) == 2 ? h : 0);
    __m256 d = head_row(b, 0, side);
    __m128i bytes;

    if (TYPE(SCALES) == 0)
        return d;
    bytes = _mm_loadu_si64(at + 8 * side);
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(TYPE(MIN) ? _mm256_cvtepu8_epi32(bytes)
                                                         : _mm256_cvtepi8_epi32(bytes)));
}

/* The numbers that are subtracted from these rows, for types with a min. */
TILE_INLINE __m256 mins(const char *b, const char *s, const int h, const int side)
{
    const int half = TYPE(HALVES) == 2 ? h : 0;
    __m256 d = head_row(b, 1, side);

    if (TYPE(SCALES) == 0)
        return d;
    s += TYPE(SCALES) + KERN_PANEL * (TYPE(HALVES) + half) + 8 * side;
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadu_si64(s))));
}

#endif
