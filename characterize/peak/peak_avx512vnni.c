#include <immintrin.h>

#include "characterize/peak/peak.h"
#include "cpu/cpu.h"

#define N_ACC 24 /* as many independent sums as in the f32 loop */

static double dot_i8(int64_t n_rounds)
{
    const __m512i one = _mm512_set1_epi8(1);
    __m512i acc[N_ACC];
    double sum = 0;

#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        acc[i] = _mm512_set1_epi32(i);
    for (int64_t r = 0; r < n_rounds; r++) {
#pragma GCC unroll 32
        for (int i = 0; i < N_ACC; i++)
            /* not the intrinsic: GCC 12 copies its sums to and fro, and measures that */
            __asm__("vpdpbusd %1, %1, %0" : "+v"(acc[i]) : "v"(one));
    }
#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        sum += _mm_cvtsi128_si32(_mm512_castsi512_si128(acc[i]));
    return sum;
}

const struct probe_isa probe_peak_avx512vnni = {
    .name = "avx512vnni",
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512VNNI),
    .arith = {{"i8_dot", "GOP/s", 2.0 * 64 * N_ACC, dot_i8}},
};
