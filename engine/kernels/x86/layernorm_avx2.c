#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

#include <math.h>

/* The sum of (x - mean)^power, power 1 or 2, by four sums, since an addition takes four cycles. */
static float sum_of(const float *x, int64_t n, float mean, int power)
{
    const __m256 centre = _mm256_set1_ps(mean);
    __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                   _mm256_setzero_ps()};
    int64_t i = 0;

    for (; i + 32 <= n; i += 32) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m256 v = _mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * j), centre);

            s[j] = power == 2 ? _mm256_fmadd_ps(v, v, s[j]) : _mm256_add_ps(s[j], v);
        }
    }
    for (; i < n; i += 8) {
        __m256i m = vec_mask(n - i);
        __m256 v = _mm256_sub_ps(_mm256_maskload_ps(x + i, m), centre);

        v = _mm256_and_ps(v, _mm256_castsi256_ps(m));
        s[0] = power == 2 ? _mm256_fmadd_ps(v, v, s[0]) : _mm256_add_ps(s[0], v);
    }
    return vec_sum(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
}

static void layernorm_avx2(float *out, const float *x, const float *w, const float *b,
                           int64_t n, float eps)
{
    float mean = sum_of(x, n, 0, 1) / (float)n;
    __m256 centre = _mm256_set1_ps(mean);
    __m256 scale = _mm256_set1_ps(1 / sqrtf(sum_of(x, n, mean, 2) / (float)n + eps));

    for (int64_t i = 0; i < n; i += 8) {
        __m256i m = vec_mask(n - i);
        __m256 v = _mm256_sub_ps(_mm256_maskload_ps(x + i, m), centre);
        __m256 bias = b ? _mm256_maskload_ps(b + i, m) : _mm256_setzero_ps();

        v = _mm256_mul_ps(v, scale);
        _mm256_maskstore_ps(out + i, m,
                            _mm256_fmadd_ps(v, _mm256_maskload_ps(w + i, m), bias));
    }
}

const struct kern_variant kern_layernorm_avx2 = {
    .name = "avx2",
    .op = KERN_LAYERNORM,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.layernorm = layernorm_avx2,
};
