#include "experiments/load/stages.h"

#include "experiments/load/load.h"

/* load_check() has read the list. */
static int read_checked(struct load_stage v[LOAD_STAGES_MAX], const struct load_opts *o)
{
    int n = 0;

    if (!o->stages || load_stages_read(v, &n, o->stages, "load.stages") != OK)
        return 0;
    return n;
}

static void stages_arrivals(const struct load_opts *o, uint64_t seed,
                            const struct load_trace *trace, double *arrival_s, size_t n)
{
    struct load_stage v[LOAD_STAGES_MAX];
    const int n_stages = read_checked(v, o);

    (void)trace;
    if (n_stages)
        load_stages_arrivals(v, n_stages, seed, arrival_s, n);
}

static size_t stages_count(const struct load_opts *o, uint64_t seed)
{
    struct load_stage v[LOAD_STAGES_MAX];
    const int n_stages = read_checked(v, o);

    return n_stages ? load_stages_arrivals(v, n_stages, seed, NULL, 0) : 0;
}

const struct load_process load_process_stages = {
    .name = "stages",
    .help = "open loop: exponential gaps from the arrival seed, at rates that change as "
            "load.stages says",
    .reads = "stages",
    .arrivals = stages_arrivals,
    .count = stages_count,
};
