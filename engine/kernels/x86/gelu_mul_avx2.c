#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

/* x / 2 (1 + tanh(y)) = x / (1 + exp(-2 y)). */
static void gelu_mul_avx2(float *out, const float *gate, const float *up, int64_t n)
{
    const __m256 one = _mm256_set1_ps(1.0f), cubic = _mm256_set1_ps(0.044715f);
    const __m256 twice = _mm256_set1_ps(-1.5957691216f); /* -2 sqrt(2 / pi) */

    for (int64_t i = 0; i < n; i += 8) {
        __m256i m = vec_mask(n - i);
        __m256 x = _mm256_maskload_ps(gate + i, m);
        __m256 u = _mm256_maskload_ps(up + i, m);
        __m256 y = _mm256_fmadd_ps(cubic, _mm256_mul_ps(x, x), one);
        __m256 e = vec_exp(_mm256_mul_ps(_mm256_mul_ps(twice, x), y));

        x = _mm256_div_ps(x, _mm256_add_ps(one, e));
        _mm256_maskstore_ps(out + i, m, _mm256_mul_ps(x, u));
    }
}

const struct kern_variant kern_gelu_mul_avx2 = {
    .name = "avx2",
    .op = KERN_GELU_MUL,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.gate = gelu_mul_avx2,
};
