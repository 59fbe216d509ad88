#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

#include <math.h>

/* Two passes: the value, then its first place. The first one classifies every number
 * while it is loaded anyway. */
#define QUIET_NAN     0x01
#define INFINITE      (0x08 | 0x10)
#define SIGNALING_NAN 0x80
static int64_t argmax_avx512(const float *x, int64_t n)
{
    const __m512 low = _mm512_set1_ps(-INFINITY);
    __m512 max = low;
    __mmask16 not_finite = 0;
    float best;

    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __m512 v = _mm512_mask_loadu_ps(low, m, x + i);

        not_finite |=
            _mm512_mask_fpclass_ps_mask(m, v, QUIET_NAN | INFINITE | SIGNALING_NAN);
        max = _mm512_max_ps(v, max);
    }
    if (not_finite)
        return -1;
    best = _mm512_reduce_max_ps(max);
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
