#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

static void to_bf16_avx512(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);

        _mm256_mask_storeu_epi16(out + i, m,
                                 vec_to_bf16(_mm512_maskz_loadu_ps(m, x + i)));
    }
}

const struct kern_variant kern_to_bf16_avx512 = {
    .name = "avx512",
    .op = KERN_TO_BF16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.to_bf16 = to_bf16_avx512,
};
