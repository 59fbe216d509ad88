/* study/support/kv_fault_table.h - many faults of transports, drawn at random (kv_faults.h), and
 * what became of them, counted by fault and phase.
 * Paper: Splitwise IV-C.   Threads: the caller's; it starts its own. */
#ifndef STUDY_KV_FAULT_TABLE_H
#define STUDY_KV_FAULT_TABLE_H

#include "experiments/study/support/kv_faults.h"

struct study_fault_count {
    int n, n_named, n_silent, n_lost;
    double worst_ms; /* of those named */
};

struct study_fault_table {
    struct study_fault_count by[STUDY_N_FAULTS][STUDY_N_PHASES];
    struct study_fault_count all;
    double *named_ms; /* [all.n_named] */
    char why[200];    /* of the first that was silent or lost; "": none was */
};

struct study_fault_opts {
    const struct cluster_transport *transport;
    bool checksums;
    int n, n_threads; /* cases; each thread has ends of its own */
    uint64_t seed;    /* the same one draws the same cases */
};

/* Free with study_fault_table_free(), also after an error. ERR_IO, ERR_NOMEM: a case could not be
 * carried out. */
MUST int study_fault_many(struct study_fault_table *out,
                          const struct study_fault_opts *o);
void study_fault_table_free(struct study_fault_table *t);

#endif
