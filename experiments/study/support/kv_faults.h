/* study/support/kv_faults.h - faults of transports of keys and values, and what becomes of them.
 *
 * A case is a fault at a phase of a transfer, over a transport. It is injected at a random point,
 * by an end that is scripted or delayed; the other end is the engine's. The fault must be named,
 * memory that is not lent must stay as it is, and the prompt's keys and values must arrive by
 * another attempt into the same memory. Time-outs are shortened.
 * Paper: Splitwise IV-C.   Threads: one for each world. */
#ifndef STUDY_KV_FAULTS_H
#define STUDY_KV_FAULTS_H

#include "base/rng.h"
#include "cluster/transport.h"

enum study_fault {
    STUDY_UNKNOWN_ID,
    STUDY_OUT_OF_RANGE,
    STUDY_REUSED_SLOT,
    STUDY_STALE_AFTER_REUSE,
    STUDY_LEASE_OVER,
    STUDY_PARTIAL_LAYER,
    STUDY_LATE,
    STUDY_DUPLICATE,
    STUDY_WRONG_LAYOUT,
    STUDY_WRONG_RANK_SPLIT,
    STUDY_TARGET_FULL,
    STUDY_PEER_KILLED,
    STUDY_PEER_STOPPED,
    STUDY_SLOW,
    STUDY_IDLE,
    STUDY_CORRUPTED,
    STUDY_N_FAULTS
};
enum study_phase {
    STUDY_IN_PREFILL,  /* memory is offered, nothing has come */
    STUDY_IN_TRANSFER, /* some layers have come */
    STUDY_IN_DECODE,   /* all has arrived, and the memory is used */
    STUDY_WHEN_IDLE,   /* no transfer was begun, or all are over */
    STUDY_N_PHASES
};
extern const char *const study_fault_names[],
    *const study_phase_names[]; /* end with NULL */

struct study_fault_case {
    enum study_fault fault;
    enum study_phase phase;
    const struct cluster_transport *transport;
    bool no_checksums;
};
/* Why there is no such case; NULL: there is. */
const char *study_fault_excluded(const struct study_fault_case *c);

struct study_fault_result {
    bool named;      /* an end said what is wrong */
    bool silent;     /* it should have been, or wrong bytes were taken for right ones */
    bool lost;       /* keys and values did not arrive afterwards */
    double named_ms; /* after the fault began */
    char says[160];
};

struct study_fault_world;
MUST int study_fault_open(struct study_fault_world **out);
void study_fault_close(struct study_fault_world **w);
/* One case. ERR_IO, ERR_NOMEM: it could not be carried out. */
MUST int study_fault_run(struct study_fault_world *w, const struct study_fault_case *c,
                         struct rng *rng, struct study_fault_result *out);

#endif
