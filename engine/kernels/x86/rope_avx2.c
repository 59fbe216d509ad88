#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

static void rope_avx2(float *x, const float *cos, const float *sin, int n_heads,
                      int head_dim)
{
    const int half = head_dim / 2;

    for (int h = 0; h < n_heads; h++, x += head_dim) {
        for (int i = 0; i < half; i += 8) {
            __m256i m = vec_mask(half - i);
            __m256 a = _mm256_maskload_ps(x + i, m);
            __m256 b = _mm256_maskload_ps(x + i + half, m);
            __m256 c = _mm256_maskload_ps(cos + i, m);
            __m256 s = _mm256_maskload_ps(sin + i, m);

            _mm256_maskstore_ps(x + i, m, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
            _mm256_maskstore_ps(x + i + half, m,
                                _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
        }
    }
}

const struct kern_variant kern_rope_avx2 = {
    .name = "avx2",
    .op = KERN_ROPE,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.rope = rope_avx2,
};
