/* experiments/study/support/trace_latency.h - what the requests of a trace take one at a time,
 * without batching, by measured times of steps: TTFT, TBT, E2E, cost, energy.
 * Paper: Splitwise III-C, III-G, Fig. 5c, Table IV.   Threads: one. */
#ifndef STUDY_TRACE_LATENCY_H
#define STUDY_TRACE_LATENCY_H

#include "cluster/perf.h"
#include "experiments/frame/frame.h"

struct trace_latency_opts {
    const char *name;     /* of the trace: the end of the metrics' names */
    const char *trace;    /* a file that datasets/ reads; NULL or absent: */
    const char *stand_in; /* the fit from which lengths are drawn then */
    const char *perf;     /* performance model to fit to the points */
    double usd_per_h;     /* NaN: unknown */
    double watt;          /* of all GPUs at their highest power; NaN: unknown */
};

/* Results of a study, for a trace of this name; all are set or none. */
#define STUDY_TRACE_RESULTS(X, name)                                                     \
    X(ttft_p50_##name, "ms", LOWER | SOME | MODEL,                                       \
      "time of the prompt, " #name ", median")                                           \
    X(tbt_p50_##name, "ms", LOWER | SOME | MODEL, "time of a token, " #name ", median")  \
    X(e2e_p50_##name, "ms", LOWER | SOME | MODEL,                                        \
      "time of a request without batching, " #name ", median")                           \
    X(e2e_p90_##name, "ms", LOWER | SOME | MODEL, "the same, p90")                       \
    X(e2e_p99_##name, "ms", LOWER | SOME | MODEL, "the same, p99")                       \
    X(token_phase_frac_##name, "", SOME | MODEL,                                         \
      "share of the token phase in the time of a request, median")                       \
    X(token_bound_frac_##name, "", SOME | MODEL,                                         \
      "share of the requests that are longer in the token phase")                        \
    X(cost_p50_##name, "USD", LOWER | SOME | MODEL,                                      \
      "cost of the machine for the median time")                                         \
    X(energy_p50_##name, "Wh", LOWER | SOME | MODEL,                                     \
      "energy of the GPUs for the median time, at their mean power")

/* Set them; the requests' times are a series, and the trace is noted.
 * ERR_*: the trace cannot be read, or the model not be fitted. */
MUST int study_trace_latency(struct frame *f, const struct cluster_point *points, int n,
                             const struct trace_latency_opts *o);

#endif
