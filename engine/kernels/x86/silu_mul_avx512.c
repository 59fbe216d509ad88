#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

static void silu_mul_avx512(float *out, const float *gate, const float *up, int64_t n)
{
    const __m512 one = _mm512_set1_ps(1.0f), minus = _mm512_set1_ps(-0.0f);

    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __m512 g = _mm512_maskz_loadu_ps(m, gate + i);
        __m512 u = _mm512_maskz_loadu_ps(m, up + i);
        __m512 e = vec_exp(_mm512_xor_ps(g, minus));

        g = _mm512_div_ps(g, _mm512_add_ps(one, e));
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(g, u));
    }
}

const struct kern_variant kern_silu_mul_avx512 = {
    .name = "avx512",
    .op = KERN_SILU_MUL,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.gate = silu_mul_avx512,
};
