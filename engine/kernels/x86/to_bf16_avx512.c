#include "kernels/kern.h"
#include "kernels/x86/vec_avx512.h"

#include "cpu/cpu.h"

/* Nearest even in integers: VCVTNEPS2BF16 would flush denormals. */
static __m256i to_bf16(__m512 x)
{
    __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    return _mm512_cvtepi32_epi16(
        _mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16), nan, quiet));
}

static void to_bf16_avx512(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = vec_mask(n - i);

        _mm256_mask_storeu_epi16(out + i, m, to_bf16(_mm512_maskz_loadu_ps(m, x + i)));
    }
}

const struct kern_variant kern_to_bf16_avx512 = {
    .name = "avx512",
    .op = KERN_TO_BF16,
    .isa = CPU_MASK(AVX512),
    .precision = KERN_EXACT,
    .fn.to_bf16 = to_bf16_avx512,
};
