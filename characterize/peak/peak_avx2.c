#include <immintrin.h>

#define VEC_BYTES         32
#define N_ACC             12 /* 2 pipes of latency 4 need 8; the file has 16 registers */
#define VEC_STREAM(to, v) _mm256_stream_ps((float *)(to), (__m256)(v))
#define VEC_FENCE()       _mm_sfence()
#include "characterize/peak/loops.h"
#include "characterize/peak/stream_stores.h"
#include "cpu/cpu.h"

/* Products of bytes, summed in pairs to 16 bits, and added: what replaces the dot product of
 * bytes where there is none. A round adds N_ACC times 32 products. */
static double dot_i8(int64_t n_rounds)
{
    const __m256i one = _mm256_set1_epi8(1);
    __m256i acc[N_ACC], pairs;
    double sum = 0;

#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        acc[i] = _mm256_set1_epi16((short)i);
    for (int64_t r = 0; r < n_rounds; r++) {
#pragma GCC unroll 32
        for (int i = 0; i < N_ACC; i++)
            __asm__("vpmaddubsw %2, %2, %1\n\tvpaddw %1, %0, %0"
                    : "+x"(acc[i]), "=&x"(pairs)
                    : "x"(one));
    }
#pragma GCC unroll 32
    for (int i = 0; i < N_ACC; i++)
        sum += _mm_cvtsi128_si32(_mm256_castsi256_si128(acc[i]));
    return sum;
}

const struct probe_isa probe_peak_avx2 = {
    .name = "avx2",
    .isa = CPU_MASK(AVX2),
    .vec_bytes = VEC_BYTES,
    .arith = {{"f32_fma", "GFLOP/s", FMA_F32_OPS, fma_f32},
              {"i8_dot", "GOP/s", 2.0 * 32 * N_ACC, dot_i8}},
    .read = READ_LOOPS,
    .copy = {copy_cached, copy_streamed},
    .triad = {triad_cached, triad_streamed},
    .mixed = mixed_f32,
};
