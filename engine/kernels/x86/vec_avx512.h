/* kernels/x86/vec_avx512.h - what the element-wise AVX-512 variants share: lanes of a
 * tail, and exp() of sixteen numbers. */
#ifndef KERNELS_X86_VEC_AVX512_H
#define KERNELS_X86_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

/* Lanes below n, all of them from 16 on; n > 0. */
static inline __mmask16 vec_mask(int64_t n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

/* Nearest even in integers: VCVTNEPS2BF16 would flush denormals. */
static inline __m256i vec_to_bf16(__m512 x)
{
    __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    return _mm512_cvtepi32_epi16(
        _mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16), nan, quiet));
}

/* n floats of a row of activations, rounded to bf16, as words of pairs (kern_variant.a_words). */
static inline void vec_bf16_words(uint32_t *out, const float *x, int64_t n, float scale)
{
    (void)scale;
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);

        _mm256_mask_storeu_epi16((uint16_t *)out + i, m,
                                 vec_to_bf16(_mm512_maskz_loadu_ps(m, x + i)));
    }
}

/* exp(x) to 1 ulp; infinite, zero and NaN as in C. With n the nearest integer to x / ln 2
 * and r = x - n ln 2 (ln 2 in two parts), exp(x) = 2^n (1 + r + r^2 q(r)); q is a minimax
 * polynomial on |r| <= ln(2) / 2. Arguments are cut where the result is 0 or infinite
 * anyway; the operand order lets a NaN through. */
static inline __m512 vec_exp(__m512 x)
{
    __m512 n, r, q;

    x = _mm512_min_ps(_mm512_set1_ps(90.0f), x);
    x = _mm512_max_ps(_mm512_set1_ps(-105.0f), x);
    n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    q = _mm512_set1_ps(0x1.6a1a72p-10f);
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.123fc6p-7f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.555916p-5f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.55548ap-3f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.fffffcp-2f));
    q = _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r);
    return _mm512_scalef_ps(_mm512_add_ps(q, _mm512_set1_ps(1.0f)), n);
}

#endif
