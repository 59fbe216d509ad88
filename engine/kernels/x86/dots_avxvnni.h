/* kernels/x86/dots_avxvnni.h - sums of products by VPDPBUSD on 256 bits, see
 * gemm_a8_avx512vnni.h. An including file defines TILE_VPDPBUSD, the instruction in the
 * encoding of AVX-VNNI. */
#ifndef KERNELS_X86_DOTS_AVXVNNI_H
#define KERNELS_X86_DOTS_AVXVNNI_H

#include "kernels/x86/rows_a8_avx2.h"

#define TILE_DOT(c, x, w) __asm__(TILE_VPDPBUSD " %1, %2, %0" : "+x"(c) : "x"(x), "x"(w))

TILE_INLINE void dots_start(__m256i dot[TILE_MR_MAX], const int32_t *a, const int h,
                            const int mr)
{
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
        dot[i] = dot_start(a, h, i, mr);
}

/* Add the products with the codes of half h (of TYPE(HALVES)) of the sub-block at s to the sums
 * of each row. */
TILE_INLINE void dots(__m256i dot[TILE_MR_MAX], const int32_t *a, const char *s,
                      const int h, const int side, const int mr)
{
    const int n = 8 / TYPE(HALVES);

#pragma GCC unroll 8
    for (int j = n * h; j < n * (h + 1); j++) {
        __m256i w = codes(s, j, side);

#pragma GCC unroll 8
        for (int i = 0; i < mr; i++)
            TILE_DOT(dot[i], _mm256_set1_epi32(a[j * mr + i]), w);
    }
}

#endif
