/* kernels/x86/dots_avxvnni.h - sums of products by VPDPBUSD on 256 bits, see
 * gemm_a8_avx512vnni.h. An including file defines TILE_VPDPBUSD, the instruction in the
 * encoding of AVX-VNNI. */
#ifndef KERNELS_X86_DOTS_AVXVNNI_H
#define KERNELS_X86_DOTS_AVXVNNI_H

#include "kernels/x86/rows_a8_avx2.h"

/* Both sides at once share the broadcasts of activations. Where sums last longer than 32 rows of
 * K, compilers find too few registers for those of more rows. */
#define TILE_SIDES(mr, how) ((mr) <= 2 || (how) != DOTS_MORE ? 2 : 1)

#define TILE_DOT(c, x, w) __asm__(TILE_VPDPBUSD " %1, %2, %0" : "+x"(c) : "x"(x), "x"(w))

/* As in dots_avx2.h. */
TILE_INLINE void dots(__m256i dot[2][TILE_MR_MAX], const int32_t *a, const char *s,
                      const int h, const int side, const int mr, const int how)
{
    const int sides = TILE_SIDES(mr, how);

#pragma GCC unroll 8
    for (int i = 0; i < mr && how != DOTS_MORE; i++)
        dot[0][i] = dot[1][i] = dot_start(a, h, i, mr);
#pragma GCC unroll 8
    for (int q = 0; q < 8 / TYPE(HALVES); q++) {
        const int j = quad(h, q);
        __m256i w[2];

#pragma GCC unroll 2
        for (int x = 0; x < sides; x++)
            w[x] = codes_of(s, j, side + x, mr, how);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            const __m256i four = word_at(&a[j * mr + i]);

#pragma GCC unroll 2
            for (int x = 0; x < sides; x++)
                TILE_DOT(dot[x][i], four, w[x]);
        }
    }
}

#endif
