#define TILE_DOT "tdpbssd"
#define TILE_ONE 0x0101
#define TILE_SUM int32_t
#include "characterize/peak/tiles.h"
#include "cpu/cpu.h"

const struct probe_isa probe_peak_amxint8 = {
    .name = "amxint8",
    .isa = CPU_MASK(AVX512) | CPU_MASK(AMXINT8),
    .arith = {{"i8_tile", "GOP/s", TILE_OPS(1), tile_dot}},
};
