#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

#include <math.h>

/* Two passes: the value, then its first place. v - v is 0 for a finite number and NaN for
 * all others, which leaves bits in the union of all differences. */
static int64_t argmax_avx2(const float *x, int64_t n)
{
    const __m256 low = _mm256_set1_ps(-INFINITY);
    __m256 max = low, not_finite = _mm256_setzero_ps();
    float best;

    for (int64_t i = 0; i < n; i += 8) {
        __m256i m = vec_mask(n - i);
        __m256 v = _mm256_maskload_ps(x + i, m);

        not_finite = _mm256_or_ps(not_finite, _mm256_sub_ps(v, v));
        max = _mm256_max_ps(_mm256_blendv_ps(low, v, _mm256_castsi256_ps(m)), max);
    }
    if (!_mm256_testz_si256(_mm256_castps_si256(not_finite),
                            _mm256_castps_si256(not_finite)))
        return -1;
    best = vec_max(max);
    for (int64_t i = 0;; i += 8) {
        __m256i m = vec_mask(n - i);
        __m256 hit =
            _mm256_cmp_ps(_mm256_maskload_ps(x + i, m), _mm256_set1_ps(best), _CMP_EQ_OQ);
        int bits = _mm256_movemask_ps(_mm256_and_ps(hit, _mm256_castsi256_ps(m)));

        if (bits)
            return i + __builtin_ctz((unsigned)bits);
    }
}

const struct kern_variant kern_argmax_avx2 = {
    .name = "avx2",
    .op = KERN_ARGMAX,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.argmax = argmax_avx2,
};
