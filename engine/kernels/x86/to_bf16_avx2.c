#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

/* Nearest even; one half in the low 16 bits of each lane. */
static __m256i to_bf16(__m256 x)
{
    __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));

    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
}

static void to_bf16_avx2(uint16_t *out, const float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m256i lo = to_bf16(_mm256_loadu_ps(x + i));
        __m256i hi = to_bf16(_mm256_loadu_ps(x + i + 8));
        __m256i both = _mm256_packus_epi32(lo, hi); /* quarters lo, hi, lo, hi */

        _mm256_storeu_si256((__m256i *)(out + i),
                            _mm256_permute4x64_epi64(both, _MM_SHUFFLE(3, 1, 2, 0)));
    }
    for (; i < n; i++)
        out[i] = kern_bf16_of(x[i]);
}

const struct kern_variant kern_to_bf16_avx2 = {
    .name = "avx2",
    .op = KERN_TO_BF16,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.to_bf16 = to_bf16_avx2,
};
