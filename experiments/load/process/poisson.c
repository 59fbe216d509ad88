#include "experiments/load/load.h"

#include "base/rng.h"

/* Gaps are drawn at rate 1 and then scaled, so that one seed gives the same pattern at
 * every rate and a sweep over rates differs in the rate only. */
static void poisson_arrivals(const struct load_opts *o, uint64_t seed,
                             const struct load_trace *trace, double *arrival_s, size_t n)
{
    struct rng r;
    double t = 0;

    (void)trace;
    rng_init(&r, seed, "arrival");
    for (size_t i = 0; i < n; i++) {
        t += rng_exp(&r);
        arrival_s[i] = t / o->rate_rps;
    }
}

const struct load_process load_process_poisson = {
    .name = "poisson",
    .help = "open loop: exponential gaps of mean 1/rate_rps from the arrival seed",
    .reads = "rate_rps",
    .arrivals = poisson_arrivals,
};
