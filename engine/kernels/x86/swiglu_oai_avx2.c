#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

/* min and max return their second operand where one is NaN. */
static void swiglu_oai_avx2(float *out, const float *gate, const float *up, int64_t n)
{
    const __m256 one = _mm256_set1_ps(1.0f), most = _mm256_set1_ps(7.0f);
    const __m256 least = _mm256_set1_ps(-7.0f), steep = _mm256_set1_ps(-1.702f);

    for (int64_t i = 0; i < n; i += 8) {
        __m256i m = vec_mask(n - i);
        __m256 g = _mm256_min_ps(most, _mm256_maskload_ps(gate + i, m));
        __m256 u = _mm256_min_ps(most, _mm256_maskload_ps(up + i, m));
        __m256 e = vec_exp(_mm256_mul_ps(steep, g));

        u = _mm256_add_ps(_mm256_max_ps(least, u), one);
        g = _mm256_div_ps(g, _mm256_add_ps(one, e));
        _mm256_maskstore_ps(out + i, m, _mm256_mul_ps(u, g));
    }
}

const struct kern_variant kern_swiglu_oai_avx2 = {
    .name = "avx2",
    .op = KERN_SWIGLU_OAI,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.gate = swiglu_oai_avx2,
};
