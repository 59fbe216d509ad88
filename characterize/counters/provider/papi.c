/* PAPI: its presets, then the processor's native events by their names. */
#include "characterize/counters/papi_group.h"

const struct counters_provider counters_papi = {
    .name = "papi",
    .help = "PAPI's presets and native events: PAPI_TOT_INS, perf::INSTRUCTIONS",
    .open = counters_papi_open,
    .add = counters_papi_add,
    .start = counters_papi_start,
    .stop = counters_papi_stop,
    .close = counters_papi_close,
};
