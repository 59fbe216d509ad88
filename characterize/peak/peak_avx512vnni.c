#define VEC_BYTES    64
#define N_ACC        24 /* as many independent sums as in the f32 loop */
#define DOT          "vpdpbusd %1, %1, %0"
#define DOT_REGISTER "v"
#define DOT_PRODUCTS 64
#include "characterize/peak/dots.h"
#include "cpu/cpu.h"

const struct probe_isa probe_peak_avx512vnni = {
    .name = "avx512vnni",
    .isa = CPU_MASK(AVX512) | CPU_MASK(AVX512VNNI),
    .arith = {{"i8_dot", "GOP/s", DOT_I8_OPS, dot_i8}},
};
