/* simulate/workload.h - the bytes and operations of one step of a phase.
 *
 * They are plain numbers, so that a simulated machine need not know models. They are of the
 * whole model and are divided among the ranks and threads.   Paper: Sandwich 5.3. */
#ifndef SIMULATE_WORKLOAD_H
#define SIMULATE_WORKLOAD_H

#include "topo/service_config.h"

struct simulate_step {
    double weight; /* how often the step occurs in a trace, relative to the others */
    double flop;   /* a multiplication and an addition count as two */
    double weight_bytes; /* weights that are read */
    double kv_bytes;     /* keys and values that are read in sequence */
    double gather_bytes; /* keys and values that are read in blocks, as paged ones are */
    double attention_frac; /* the part of flop and weight_bytes that is split by KV heads;
                               the rest is split by units */
    double n_barriers;     /* among the threads of each rank */
    double n_allreduces;   /* among the ranks; not counted where there is only one */
    double allreduce_bytes; /* bytes of each all-reduce */
};

#define SIMULATE_STEPS_MAX 8
/* The steps of a phase in a trace. T(plan, trace) is the weighted mean of their times. */
struct simulate_workload {
    enum topo_phase phase;
    int n;
    struct simulate_step v[SIMULATE_STEPS_MAX];
};

#endif
