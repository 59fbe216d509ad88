#include "experiments/harness/load.h"

static void constant_arrivals(const struct load_opts *o, uint64_t seed, double *arrival_s,
                              size_t n)
{
    (void)seed;
    for (size_t i = 0; i < n; i++)
        arrival_s[i] = (double)i / o->rate_rps;
}

const struct load_process load_process_constant = {
    .name = "constant",
    .help = "open loop: one request every 1/rate_rps seconds",
    .arrivals = constant_arrivals,
};
