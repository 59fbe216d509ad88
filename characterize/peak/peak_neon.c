#define VEC_BYTES         16
#define N_ACC             24 /* 4 pipes of latency 4 need 16; the file has 32 registers */
#define VEC_STREAM(to, v) (*(to) = (v))
#include "characterize/peak/loops.h"
#include "cpu/cpu.h"

const struct probe_isa probe_peak_neon = {
    .name = "neon",
    .isa = CPU_MASK(NEON),
    .vec_bytes = VEC_BYTES,
    .arith = {{"f32_fma", "GFLOP/s", FMA_F32_OPS, fma_f32}},
    .read = READ_LOOPS,
    .copy = {copy_cached},
    .triad = {triad_cached},
    .mixed = mixed_f32,
};
