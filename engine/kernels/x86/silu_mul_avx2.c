#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

static void silu_mul_avx2(float *out, const float *gate, const float *up, int64_t n)
{
    const __m256 one = _mm256_set1_ps(1.0f), minus = _mm256_set1_ps(-0.0f);

    for (int64_t i = 0; i < n; i += 8) {
        __m256i m = vec_mask(n - i);
        __m256 g = _mm256_maskload_ps(gate + i, m);
        __m256 u = _mm256_maskload_ps(up + i, m);
        __m256 e = vec_exp(_mm256_xor_ps(g, minus));

        g = _mm256_div_ps(g, _mm256_add_ps(one, e));
        _mm256_maskstore_ps(out + i, m, _mm256_mul_ps(g, u));
    }
}

const struct kern_variant kern_silu_mul_avx2 = {
    .name = "avx2",
    .op = KERN_SILU_MUL,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.gate = silu_mul_avx2,
};
