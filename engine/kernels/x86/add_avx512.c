#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

static void add_avx512(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(m, y + i),
                                   _mm512_maskz_loadu_ps(m, x + i));

        _mm512_mask_storeu_ps(y + i, m, sum);
    }
}

const struct kern_variant kern_add_avx512 = {
    .name = "avx512",
    .op = KERN_ADD,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.add = add_avx512,
};
