/* kernels/x86/rows_a8_avx2.h - what dots_avx2.h and dots_avxvnni.h share. */
#ifndef KERNELS_X86_ROWS_A8_AVX2_H
#define KERNELS_X86_ROWS_A8_AVX2_H

#define TILE_MR_MAX 6
#define TILE_ROWS                                                                        \
    {                                                                                    \
        6                                                                                \
    }
#define TILE_SET(X)      TILE_UP_6(X, 1)
#define TILE_KEPT        2
#define TILE_SETS(mr)    1
#define TILE_A_WORDS     KERN_A_I8_WORDS
#define TILE_SPARSE_ROWS 1
/* Are there registers for masks, a block's scales and what is loaded for two quads? */
#define TILE_KEEP(mr)                                                                    \
    ((mr) == 1 && TYPE(BITS) >= 4 && (TYPE(SUBS) <= 1 || TYPE(BITS) == 4))

#include "kernels/x86/codes_avx2.h"

/* The sums that dots() adds products to, and its operands. */
enum {
    DOTS_MORE,  /* to the sums that there are; of codes as the panel has them */
    DOTS_FRESH, /* to dot_start() */
    DOTS_BYTES, /* to dot_start(); of codes as bytes, in the order of Q8_0 */
};

/* The word at a in every lane. (The compiler's way for integers may lead through a general
 * register.) */
TILE_INLINE __m256i word_at(const int32_t *a)
{
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)a));
}

/* The start value of the sums of row i: -zero sum(a) (kernels/panel.h). */
TILE_INLINE __m256i dot_start(const int32_t *a, const int h, const int i, const int mr)
{
    return TYPE(MIN) ? _mm256_setzero_si256() : word_at(&a[(KERN_A_I8_SUM + h) * mr + i]);
}

TILE_INLINE __m256i codes_of(const char *s, const int j, const int side, const int mr,
                             const int how)
{
    if (how != DOTS_BYTES)
        return codes(s, j, side, TILE_KEEP(mr));
    __asm__ volatile("" : "+r"(s)::"memory"); /* as in codes() */
    return bytes_at(s + 64 * j + 32 * side);
}

/* The quads of four rows of K of half h (of TYPE(HALVES)) in the order in which they are
 * multiplied: those whose low bits are in the same bytes follow each other. */
TILE_INLINE int quad(const int h, const int q)
{
    return TYPE(HALVES) == 2 || TYPE(BITS) == 8 ? 4 * h + q : q % 2 * 4 + q / 2;
}

#endif
