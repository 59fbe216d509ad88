#include "experiments/load/load.h"

static void constant_arrivals(const struct load_opts *o, uint64_t seed,
                              const struct load_trace *trace, double *arrival_s, size_t n)
{
    (void)seed, (void)trace;
    for (size_t i = 0; i < n; i++)
        arrival_s[i] = (double)i / o->rate_rps;
}

const struct load_process load_process_constant = {
    .name = "constant",
    .help = "open loop: one request every 1/rate_rps seconds",
    .reads = "rate_rps",
    .arrivals = constant_arrivals,
};
