#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

#include <math.h>

/* Four sums, since an addition takes four cycles. */
static float sum_of_squares(const float *x, int64_t n)
{
    __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                   _mm256_setzero_ps()};
    int64_t i = 0;

    for (; i + 32 <= n; i += 32) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m256 v = _mm256_loadu_ps(x + i + 8 * j);

            s[j] = _mm256_fmadd_ps(v, v, s[j]);
        }
    }
    for (; i < n; i += 8) {
        __m256 v = _mm256_maskload_ps(x + i, vec_mask(n - i));

        s[0] = _mm256_fmadd_ps(v, v, s[0]);
    }
    return vec_sum(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
}

static void rmsnorm_avx2(float *out, const float *x, const float *w, int64_t n, float eps)
{
    __m256 scale = _mm256_set1_ps(1 / sqrtf(sum_of_squares(x, n) / (float)n + eps));

    for (int64_t i = 0; i < n; i += 8) {
        __m256i m = vec_mask(n - i);
        __m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + i, m), scale);

        _mm256_maskstore_ps(out + i, m, _mm256_mul_ps(v, _mm256_maskload_ps(w + i, m)));
    }
}

const struct kern_variant kern_rmsnorm_avx2 = {
    .name = "avx2",
    .op = KERN_RMSNORM,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.rmsnorm = rmsnorm_avx2,
};
