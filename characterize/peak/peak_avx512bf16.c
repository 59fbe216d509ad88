#include <immintrin.h>

#include "characterize/peak/peak.h"
#include "cpu/cpu.h"

#define N_ACC 24 /* as many independent sums as in the f32 loop */

/* Ones times ones, so that the sums stay ordinary numbers. */
static double dot_bf16(int64_t n_rounds)
{
    const __m512bh one = (__m512bh)_mm512_set1_epi16(0x3f80); /* 1.0 */
    __m512 acc[N_ACC];
    double sum = 0;

#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < n_rounds; r++) {
#pragma GCC unroll 32
        for (int i = 0; i < N_ACC; i++)
            acc[i] = _mm512_dpbf16_ps(acc[i], one, one);
    }
#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        sum += (double)_mm512_cvtss_f32(acc[i]);
    return sum;
}

const struct probe_isa probe_peak_avx512bf16 = {
    .name = "avx512bf16",
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512BF16),
    .arith = {{"bf16_dot", "GFLOP/s", 2.0 * 32 * N_ACC, dot_bf16}},
};
