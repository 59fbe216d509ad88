/* kernels/x86/a_group_avx512.h - activations as integers of 8 bits (kern_variant.a_group). */
#ifndef KERNELS_X86_A_GROUP_AVX512_H
#define KERNELS_X86_A_GROUP_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/pack_i8.h"

/* As pack_i8.c: magnitudes are compared as integers, so that NaN is the largest, and a conversion
 * rounds to the nearest even, as adding 1.5 * 2^23 does. */
static void a_group_avx512(struct kern_i8_group *g, const float *x, const float *row_most)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16), per_step;
    __m512i low, high;
    float most;

    if (row_most) {
        most = *row_most;
    } else {
        __m512i bits =
            _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                             _mm512_and_si512(_mm512_castps_si512(b), magnitude));

        most = _mm_cvtss_f32(
            _mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(bits))));
    }
    if (!(most >= KERN_A_I8_MIN && most < INFINITY)) {
        memset(g, 0, sizeof(*g));
        g->scale = isfinite(most) ? 0 : NAN;
        return;
    }
    per_step = _mm512_set1_ps(127 / most);
    low = _mm512_cvtps_epi32(_mm512_mul_ps(a, per_step));
    high = _mm512_cvtps_epi32(_mm512_mul_ps(b, per_step));
    g->scale = most / 127;
    g->sum[0] = _mm512_reduce_add_epi32(low);
    g->sum[1] = _mm512_reduce_add_epi32(high);
    _mm_storeu_si128((__m128i_u *)g->code, _mm512_cvtepi32_epi8(low));
    _mm_storeu_si128((__m128i_u *)(g->code + 16), _mm512_cvtepi32_epi8(high));
}

#endif
