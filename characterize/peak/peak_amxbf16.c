#define TILE_DOT "tdpbf16ps"
#define TILE_ONE 0x3f80
#define TILE_SUM float
#include "characterize/peak/tiles.h"
#include "cpu/cpu.h"

const struct probe_isa probe_peak_amxbf16 = {
    .name = "amxbf16",
    .isa = CPU_MASK(AVX512) | CPU_MASK(AMXBF16),
    .arith = {{"bf16_tile", "GFLOP/s", TILE_OPS(2), tile_dot}},
};
