/* The peak of any processor: 16-byte vectors, which the compiler takes apart if need be.
 */
#define VEC_BYTES         16
#define N_ACC             12
#define VEC_STREAM(to, v) (*(to) = (v))
#include "characterize/peak/loops.h"

const struct probe_isa probe_peak_ref = {
    .name = "ref",
    .isa = 0,
    .vec_bytes = VEC_BYTES,
    .arith = {{"f32_fma", "GFLOP/s", FMA_F32_OPS, fma_f32}},
    .read = READ_LOOPS,
    .copy = {copy_cached},
    .triad = {triad_cached},
    .mixed = mixed_f32,
};
