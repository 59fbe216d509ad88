#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

static void from_bf16_avx512(float *out, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __m256i h = _mm256_maskz_loadu_epi16(m, x + i);

        _mm512_mask_storeu_ps(
            out + i, m,
            _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)));
    }
}

const struct kern_variant kern_from_bf16_avx512 = {
    .name = "avx512",
    .op = KERN_FROM_BF16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.from_bf16 = from_bf16_avx512,
};
