#define VEC_BYTES    16
#define N_ACC        24 /* as many independent sums as in the f32 loop */
#define DOT          "sdot %0.4s, %1.16b, %1.16b"
#define DOT_REGISTER "w"
#define DOT_PRODUCTS 16
#include "characterize/peak/dots.h"
#include "cpu/cpu.h"

const struct probe_isa probe_peak_neondot = {
    .name = "neondot",
    .isa = CPU_MASK(NEON) | CPU_MASK(NEONDOT),
    .arith = {{"i8_dot", "GOP/s", DOT_I8_OPS, dot_i8}},
};
