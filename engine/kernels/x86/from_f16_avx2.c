#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

static void from_f16_avx2(float *out, const uint16_t *x, int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(x + i));

        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(h));
    }
    for (; i < n; i++)
        out[i] = kern_f16_to(x[i]);
}

const struct kern_variant kern_from_f16_avx2 = {
    .name = "avx2",
    .op = KERN_FROM_F16,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.from_f16 = from_f16_avx2,
};
