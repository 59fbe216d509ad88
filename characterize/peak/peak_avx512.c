#include <immintrin.h>

#define VEC_BYTES         64
#define N_ACC             24 /* 2 pipes of latency 4 need 8; the file has 32 registers */
#define VEC_STREAM(to, v) _mm512_stream_ps((float *)(to), (__m512)(v))
#define VEC_FENCE()       _mm_sfence()
#include "characterize/peak/loops.h"
#include "characterize/peak/stream_stores.h"
#include "cpu/cpu.h"

const struct probe_isa probe_peak_avx512 = {
    .name = "avx512",
    .isa = CPU_MASK(AVX512),
    .vec_bytes = VEC_BYTES,
    .arith = {{"f32_fma", "GFLOP/s", FMA_F32_OPS, fma_f32}},
    .read = READ_LOOPS,
    .copy = {copy_cached, copy_streamed},
    .triad = {triad_cached, triad_streamed},
    .mixed = mixed_f32,
};
