#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

static void to_f16_avx512(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);
        __m512 v = _mm512_maskz_loadu_ps(m, x + i);

        _mm256_mask_storeu_epi16(out + i, m,
                                 _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
}

const struct kern_variant kern_to_f16_avx512 = {
    .name = "avx512",
    .op = KERN_TO_F16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.to_f16 = to_f16_avx512,
};
