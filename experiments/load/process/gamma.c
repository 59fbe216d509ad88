#include "experiments/load/load.h"

#include "base/rng.h"

/* Gaps of mean 1/rate_rps and shape `burstiness`: vLLM's serving benchmark defines them so.
 * They are drawn at rate 1 and then scaled, as those of poisson. */
static void gamma_arrivals(const struct load_opts *o, uint64_t seed,
                           const struct load_trace *trace, double *arrival_s, size_t n)
{
    struct rng r;
    double t = 0;

    (void)trace;
    rng_init(&r, seed, "arrival");
    for (size_t i = 0; i < n; i++) {
        t += rng_gamma(&r, o->burstiness) / o->burstiness;
        arrival_s[i] = t / o->rate_rps;
    }
}

const struct load_process load_process_gamma = {
    .name = "gamma",
    .help = "open loop: gamma-distributed gaps of mean 1/rate_rps and shape burstiness "
            "from the arrival seed; burstiness 1 has the distribution of poisson",
    .reads = "rate_rps burstiness",
    .arrivals = gamma_arrivals,
};
