/* simulate/workload.h - what one step of a phase asks of a machine: bytes and operations.
 *
 * Plain numbers, so that a simulated machine need not know models.
 * Whole-model figures; the ranks and threads share them.   Paper: Sandwich 5.3. */
#ifndef SIMULATE_WORKLOAD_H
#define SIMULATE_WORKLOAD_H

#include "topo/service_config.h"

struct simulate_step {
    double weight;          /* of this step in a trace: how often it happens, relative */
    double flop;            /* multiply and add count as two */
    double weight_bytes;    /* weights read */
    double kv_bytes;        /* keys and values read in a stream */
    double gather_bytes;    /* ... and read in pieces, as paged keys and values are */
    double attention_frac;  /* of flop and weight_bytes: the part split by KV heads; the
                                rest is split by units */
    double n_barriers;      /* of each rank's threads */
    double n_allreduces;    /* over the ranks; none where there is one */
    double allreduce_bytes; /* of each */
};

#define SIMULATE_STEPS_MAX 8
/* The steps of a phase over a trace; T(plan, trace) is the weighted mean of their times. */
struct simulate_workload {
    enum topo_phase phase;
    int n;
    struct simulate_step v[SIMULATE_STEPS_MAX];
};

#endif
