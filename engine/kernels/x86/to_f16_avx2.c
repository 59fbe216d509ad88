#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

static void to_f16_avx2(uint16_t *out, const float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);

        _mm_storeu_si128((__m128i *)(out + i),
                         _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; i++)
        out[i] = kern_f16_of(x[i]);
}

const struct kern_variant kern_to_f16_avx2 = {
    .name = "avx2",
    .op = KERN_TO_F16,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.to_f16 = to_f16_avx2,
};
