#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

static void from_f16_avx512(float *out, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __m256i h = _mm256_maskz_loadu_epi16(m, x + i);

        _mm512_mask_storeu_ps(out + i, m, _mm512_cvtph_ps(h));
    }
}

const struct kern_variant kern_from_f16_avx512 = {
    .name = "avx512",
    .op = KERN_FROM_F16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.from_f16 = from_f16_avx512,
};
