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

#include "kernels/x86/codes_avx2.h"

/* What the sums of row i begin with: -zero sum(a) (kernels/panel.h). */
TILE_INLINE __m256i dot_start(const int32_t *a, const int h, const int i, const int mr)
{
    return TYPE(MIN) ? _mm256_setzero_si256()
                     : _mm256_set1_epi32(a[(KERN_A_I8_SUM + h) * mr + i]);
}

#endif
