/* kernels/x86/a_group_avx2.h - activations as integers of 8 bits (kern_variant.a_group), as
 * a_group_avx512.h makes them. */
#ifndef KERNELS_X86_A_GROUP_AVX2_H
#define KERNELS_X86_A_GROUP_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/pack_i8.h"

static inline float a_group_largest_avx2(const __m256 x[4])
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
    __m128i four;

    for (int i = 0; i < 4; i++)
        most = _mm256_max_epi32(most,
                                _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
    four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

static void a_group_avx2(struct kern_i8_group *g, const float *x, const float *row_most)
{
    const __m256 in[4] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8),
                          _mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24)};
    const float most = row_most ? *row_most : a_group_largest_avx2(in);
    __m256i q[4], code;

    if (!(most >= KERN_A_I8_MIN && most < INFINITY)) {
        memset(g, 0, sizeof(*g));
        g->scale = isfinite(most) ? 0 : NAN;
        return;
    }
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(in[i], _mm256_set1_ps(127 / most)));
    g->scale = most / 127;
    for (int h = 0; h < 2; h++) {
        __m256i eight = _mm256_add_epi32(q[2 * h], q[2 * h + 1]);
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight),
                                     _mm256_extracti128_si256(eight, 1));

        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
        g->sum[h] = _mm_cvtsi128_si32(four);
    }
    /* Packing works within halves of 128 bits: groups of four codes are out of order. */
    code = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]),
                              _mm256_packs_epi32(q[2], q[3]));
    code = _mm256_permutevar8x32_epi32(code, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i_u *)g->code, code);
}

#endif
