#define VEC_BYTES    32
#define N_ACC        12 /* as many independent sums as in the f32 loop */
#define DOT          "%{vex%} vpdpbusd %1, %1, %0"
#define DOT_REGISTER "x"
#define DOT_PRODUCTS 32
#include "characterize/peak/dots.h"
#include "cpu/cpu.h"

const struct probe_isa probe_peak_avxvnni = {
    .name = "avxvnni",
    .isa = CPU_MASK(AVX2) | CPU_MASK(AVXVNNI),
    .arith = {{"i8_dot", "GOP/s", DOT_I8_OPS, dot_i8}},
};
