/* cluster/contention.h - the steps that machines compute. Machines on one memory controller slow
 * each other: a step's end is put off, or brought forward, whenever a neighbour's step begins or
 * ends. Without contention each step ends when it was to.   Threads: one owner. */
#ifndef CLUSTER_CONTENTION_H
#define CLUSTER_CONTENTION_H

#include "cluster/cluster.h"
#include "cluster/event.h"

/* The present step of a machine. */
struct cluster_running {
    int controller; /* as in struct cluster_machine_opts */
    bool busy;
    enum cluster_pool kind;
    double left_ns, rate; /* alone, at since_ns; 1 or less */
    int64_t since_ns, end_ns;
    double busy_ns; /* of all of its steps so far */
};

struct cluster_steps {
    struct cluster_running *of; /* [n] by machine */
    int n;
    const struct cluster_contention *contention; /* NULL: none */
    struct cluster_events *events;               /* every end goes there; lent */
    double busy_ns[2];                           /* of all steps so far, by kind */
};

/* A step that takes step_ns alone begins on machine i, or its present one has ended: push the event
 * of its end, and those of its neighbours, whose speed changes. An event of type CLUSTER_STEP_END
 * counts only where the machine is busy and end_ns is its time.   ERR_STATE: of the events. */
MUST int cluster_step_begin(struct cluster_steps *s, int i, enum cluster_pool kind,
                            int64_t step_ns);
MUST int cluster_step_end(struct cluster_steps *s, int i);
/* The present step ends at end_ns, no later than it was to: an event of that time is pushed. The
 * machine shares no controller. */
MUST int cluster_step_shorten(struct cluster_steps *s, int i, int64_t end_ns);
/* It ends now, without an event. */
MUST int cluster_step_abort(struct cluster_steps *s, int i);

#endif
