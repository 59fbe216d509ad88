#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

#include <math.h>

/* Four sums, since an addition takes four cycles. */
static float sum_of_squares(const float *x, int64_t n)
{
    __m512 s[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                   _mm512_setzero_ps()};
    int64_t i = 0;

    for (; i + 64 <= n; i += 64) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m512 v = _mm512_loadu_ps(x + i + 16 * j);

            s[j] = _mm512_fmadd_ps(v, v, s[j]);
        }
    }
    for (; i < n; i += 16) {
        __m512 v = _mm512_maskz_loadu_ps(vec_mask(n - i), x + i);

        s[0] = _mm512_fmadd_ps(v, v, s[0]);
    }
    return _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])));
}

static void rmsnorm_avx512(float *out, const float *x, const float *w, int64_t n,
                           float eps)
{
    __m512 scale = _mm512_set1_ps(1 / sqrtf(sum_of_squares(x, n) / (float)n + eps));

    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), scale);

        _mm512_mask_storeu_ps(out + i, m,
                              _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, w + i)));
    }
}

const struct kern_variant kern_rmsnorm_avx512 = {
    .name = "avx512",
    .op = KERN_RMSNORM,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.rmsnorm = rmsnorm_avx512,
};
