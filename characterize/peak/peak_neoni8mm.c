#define VEC_BYTES    16
#define N_ACC        24 /* as many independent sums as in the f32 loop */
#define DOT          "smmla %0.4s, %1.16b, %1.16b"
#define DOT_REGISTER "w"
#define DOT_PRODUCTS 32 /* two rows times two columns of eight */
#include "characterize/peak/dots.h"
#include "cpu/cpu.h"

const struct probe_isa probe_peak_neoni8mm = {
    .name = "neoni8mm",
    .isa = CPU_MASK(NEON) | CPU_MASK(NEONI8MM),
    .arith = {{"i8_dot", "GOP/s", DOT_I8_OPS, dot_i8}},
};
