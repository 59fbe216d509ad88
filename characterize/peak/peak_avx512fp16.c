#include <immintrin.h>

#include "characterize/peak/peak.h"
#include "cpu/cpu.h"

#define N_ACC 24 /* as many independent sums as in the f32 loop */

/* Multiply-adds that converge, so that no half ever becomes special or denormal. */
static double fma_f16(int64_t n_rounds)
{
    volatile _Float16 factor = (_Float16)0.75f, term = (_Float16)0.3f;
    const __m512h a = _mm512_set1_ph(factor), b = _mm512_set1_ph(term);
    __m512h acc[N_ACC];
    double sum = 0;

#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        acc[i] = _mm512_set1_ph((_Float16)(float)i);
    for (int64_t r = 0; r < n_rounds; r++) {
#pragma GCC unroll 32
        for (int i = 0; i < N_ACC; i++)
            acc[i] = _mm512_fmadd_ph(acc[i], a, b);
    }
#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        sum += (double)_mm512_cvtsh_h(acc[i]);
    return sum;
}

const struct probe_isa probe_peak_avx512fp16 = {
    .name = "avx512fp16",
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512FP16),
    .arith = {{"fp16_fma", "GFLOP/s", 2.0 * 32 * N_ACC, fma_f16}},
};
