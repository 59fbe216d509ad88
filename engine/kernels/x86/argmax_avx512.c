#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

#include <math.h>

/* Two passes: the value, then its first place. A maximum keeps its second operand when
 * the first is NaN, so NaN never enters. */
static int64_t argmax_avx512(const float *x, int64_t n)
{
    const __m512 low = _mm512_set1_ps(-INFINITY);
    __m512 max = low;
    float best;

    for (int64_t i = 0; i < n; i += 16)
        max = _mm512_max_ps(_mm512_mask_loadu_ps(low, vec_mask(n - i), x + i), max);
    best = _mm512_reduce_max_ps(max);
    if (best == -INFINITY)
        return 0;
    for (int64_t i = 0;; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __mmask16 hit = _mm512_mask_cmp_ps_mask(m, _mm512_maskz_loadu_ps(m, x + i),
                                                _mm512_set1_ps(best), _CMP_EQ_OQ);

        if (hit)
            return i + __builtin_ctz(hit);
    }
}

const struct kern_variant kern_argmax_avx512 = {
    .name = "avx512",
    .op = KERN_ARGMAX,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.argmax = argmax_avx512,
};
