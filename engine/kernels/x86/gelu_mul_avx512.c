#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

/* x / 2 (1 + tanh(y)) = x / (1 + exp(-2 y)). */
static void gelu_mul_avx512(float *out, const float *gate, const float *up, int64_t n)
{
    const __m512 one = _mm512_set1_ps(1.0f), cubic = _mm512_set1_ps(0.044715f);
    const __m512 twice = _mm512_set1_ps(-1.5957691216f); /* -2 sqrt(2 / pi) */

    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __m512 x = _mm512_maskz_loadu_ps(m, gate + i);
        __m512 u = _mm512_maskz_loadu_ps(m, up + i);
        __m512 y = _mm512_fmadd_ps(cubic, _mm512_mul_ps(x, x), one);
        __m512 e = vec_exp(_mm512_mul_ps(_mm512_mul_ps(twice, x), y));

        x = _mm512_div_ps(x, _mm512_add_ps(one, e));
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(x, u));
    }
}

const struct kern_variant kern_gelu_mul_avx512 = {
    .name = "avx512",
    .op = KERN_GELU_MUL,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.gate = gelu_mul_avx512,
};
