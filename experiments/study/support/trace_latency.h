/* experiments/study/support/trace_latency.h - what the requests of a trace take one at a time,
 * without batching, by measured times of steps: TTFT, TBT, E2E, cost, energy.
 * Paper: Splitwise III-C, III-G, Fig. 5c, Table IV.   Threads: one. */
#ifndef STUDY_TRACE_LATENCY_H
#define STUDY_TRACE_LATENCY_H

#include "cluster/perf.h"
#include "experiments/load/study.h"

struct trace_latency_opts {
    const char *name;     /* of the trace: the end of the metrics' names */
    const char *trace;    /* a file that datasets/ reads; NULL or absent: */
    const char *stand_in; /* the fit from which lengths are drawn then */
    const char *perf;     /* performance model to fit to the points */
    double usd_per_h;     /* NaN: unknown */
    double watt;          /* of all GPUs at their highest power; NaN: unknown */
};

/* Rows of a study's metrics, for a trace of this name. */
#define STUDY_TRACE_METRICS(name)                                                        \
    {"ttft_p50_" name, "ms", "lower", "time of the prompt, " name ", median"},           \
        {"tbt_p50_" name, "ms", "lower", "time of a token, " name ", median"},           \
        {"e2e_p50_" name, "ms", "lower",                                                 \
         "time of a request without batching, " name ", median"},                        \
        {"e2e_p90_" name, "ms", "lower", "the same, p90"},                               \
        {"e2e_p99_" name, "ms", "lower", "the same, p99"},                               \
        {"token_phase_frac_" name, "", "",                                               \
         "share of the token phase in the time of a request, median"},                   \
        {"token_bound_frac_" name, "", "",                                               \
         "share of the requests that are longer in the token phase"},                    \
        {"cost_p50_" name, "USD", "lower", "cost of the machine for the median time"},   \
    {                                                                                    \
        "energy_p50_" name, "Wh", "lower",                                               \
            "energy of the GPUs for the median time, at their mean power"                \
    }

/* Report them. ERR_*: the trace cannot be read, or the model not be fitted. */
MUST int study_trace_latency(struct study_cell *out, const struct cluster_point *points,
                             int n, const struct trace_latency_opts *o);

#endif
