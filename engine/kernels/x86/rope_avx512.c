#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

static void rope_avx512(float *x, const float *cos, const float *sin, int n_heads,
                        int head_dim)
{
    const int half = head_dim / 2;

    for (int h = 0; h < n_heads; h++, x += head_dim) {
        for (int i = 0; i < half; i += 16) {
            __mmask16 m = vec_mask(half - i);
            __m512 a = _mm512_maskz_loadu_ps(m, x + i);
            __m512 b = _mm512_maskz_loadu_ps(m, x + i + half);
            __m512 c = _mm512_maskz_loadu_ps(m, cos + i);
            __m512 s = _mm512_maskz_loadu_ps(m, sin + i);

            _mm512_mask_storeu_ps(x + i, m, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
            _mm512_mask_storeu_ps(x + i + half, m,
                                  _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
        }
    }
}

const struct kern_variant kern_rope_avx512 = {
    .name = "avx512",
    .op = KERN_ROPE,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.rope = rope_avx512,
};
