/* kernels/x86/vec_avx2.h - what the element-wise AVX2 variants share: lanes of a tail,
 * sums across lanes, and exp() of eight numbers. */
#ifndef KERNELS_X86_VEC_AVX2_H
#define KERNELS_X86_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

/* Lanes below n, all of them from 8 on. */
static inline __m256i vec_mask(int64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : (int)n), lane);
}

static inline float vec_sum(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float vec_max(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* 2^n for -127 < n < 128. */
static inline __m256 vec_pow2(__m256i n)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* exp(x) to 1 ulp; infinite, zero and NaN as in C. With n the nearest integer to x / ln 2
 * and r = x - n ln 2 (ln 2 in two parts), exp(x) = 2^n (1 + r + r^2 q(r)); q is a minimax
 * polynomial on |r| <= ln(2) / 2. Arguments are cut where the result is 0 or infinite
 * anyway; the operand order lets a NaN through. 2^n is applied in two halves, since n
 * reaches beyond the exponents of normal numbers. */
static inline __m256 vec_exp(__m256 x)
{
    __m256 n, r, q;
    __m256i whole, half;

    x = _mm256_min_ps(_mm256_set1_ps(90.0f), x);
    x = _mm256_max_ps(_mm256_set1_ps(-105.0f), x);
    n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    q = _mm256_set1_ps(0x1.6a1a72p-10f);
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.123fc6p-7f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.555916p-5f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.55548ap-3f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.fffffcp-2f));
    q = _mm256_fmadd_ps(q, _mm256_mul_ps(r, r), r);
    q = _mm256_add_ps(q, _mm256_set1_ps(1.0f));
    whole = _mm256_cvtps_epi32(n);
    half = _mm256_srai_epi32(whole, 1);
    q = _mm256_mul_ps(q, vec_pow2(half));
    return _mm256_mul_ps(q, vec_pow2(_mm256_sub_epi32(whole, half)));
}

#endif
