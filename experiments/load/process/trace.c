#include "experiments/load/load.h"

/* After its last arrival the trace begins again, one mean gap later. */
static void trace_arrivals(const struct load_opts *o, uint64_t seed,
                           const struct load_trace *trace, double *arrival_s, size_t n)
{
    const double *at = trace->arrival_s;
    double first = at[0], span = at[trace->n - 1] - first;
    double period = trace->n > 1 ? span + span / (double)(trace->n - 1) : 1;

    (void)seed;
    for (size_t i = 0; i < n; i++)
        arrival_s[i] =
            o->time_scale * (at[i % trace->n] - first + (double)(i / trace->n) * period);
}

const struct load_process load_process_trace = {
    .name = "trace",
    .help = "open loop: the arrival times of the data set, multiplied by time_scale",
    .reads = "time_scale",
    .wants_trace = true,
    .arrivals = trace_arrivals,
};
