#include <immintrin.h>

#define VEC_BYTES         32
#define N_ACC             12 /* 2 pipes of latency 4 need 8; the file has 16 registers */
#define VEC_STREAM(to, v) _mm256_stream_ps((float *)(to), (__m256)(v))
#define VEC_FENCE()       _mm_sfence()
#include "characterize/peak/loops.h"
#include "characterize/peak/stream_stores.h"
#include "cpu/cpu.h"

const struct probe_isa probe_peak_avx2 = {
    .name = "avx2",
    .isa = CPU_MASK(AVX2),
    .vec_bytes = VEC_BYTES,
    .arith = {{"f32_fma", "GFLOP/s", FMA_F32_OPS, fma_f32}},
    .read = READ_LOOPS,
    .copy = {copy_cached, copy_streamed},
    .triad = {triad_cached, triad_streamed},
};
