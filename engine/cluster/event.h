/* cluster/event.h - the events of a simulated history, in order of time.
 *
 * A binary heap over (virtual nanoseconds, order of push): events of one time happen in the order
 * in which they were pushed, so that one seed is one history. The clock is the time of the
 * latest event and never goes back.   Paper: Splitwise V-B.   Threads: one owner. */
#ifndef CLUSTER_EVENT_H
#define CLUSTER_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum cluster_event_kind {
    CLUSTER_ARRIVAL,
    CLUSTER_STEP_END,     /* machine */
    CLUSTER_TRANSFER_END, /* request */
    CLUSTER_REPORT,       /* of all machines */
    CLUSTER_RETRY,        /* machine */
    CLUSTER_OUTAGE,       /* of a machine begins */
    CLUSTER_OUTAGE_END,
};
#define CLUSTER_N_EVENT_KINDS (CLUSTER_OUTAGE_END + 1)

struct cluster_event {
    int64_t t_ns;
    uint64_t order;
    enum cluster_event_kind kind;
    union {
        int machine;
        int transfer; /* of the request: its number */
    };
    void *request; /* or the outage */
};

struct cluster_events { /* all zero: empty, at time 0 */
    struct cluster_event *heap;
    size_t n, max;
    size_t n_of[CLUSTER_N_EVENT_KINDS]; /* of the n, by kind */
    uint64_t n_pushed;
    int64_t now_ns;
};

/* `order` is set here. ERR_STATE: it is earlier than now. */
MUST int cluster_events_push(struct cluster_events *q, struct cluster_event e);
/* The earliest event; the clock moves to it. false: there is none. */
bool cluster_events_pop(struct cluster_events *q, struct cluster_event *out);
void cluster_events_fini(struct cluster_events *q);

#endif
