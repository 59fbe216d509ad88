/* cluster/sim.h - the simulated cluster from inside: what its files share. sim.c has the history,
 * assign.c the cluster's scheduler, machine.c steps and memory of a machine, handover.c keys and
 * values between machines, outage.c machines that fail or are drained.
 * Nobody outside of the simulator includes it.   Threads: one owner. */
#ifndef CLUSTER_SIM_H
#define CLUSTER_SIM_H

#include "cluster/cluster.h"
#include "cluster/contention.h"
#include "cluster/event.h"
#include "cluster/transfer.h"
#include "sched/loop.h"

struct cluster_request {
    struct sched_request r;        /* first; on the machine where it is */
    struct cluster_done d;         /* its report */
    struct cluster_machine *p, *t; /* that computes its prompt, and its tokens */
    int64_t n_before;              /* tokens that it had when it got these machines */
    int64_t prompt_tok;            /* that p computes: its prompt, and n_before */
    int64_t kv_tok;                /* its memory on that machine */
    int64_t held_tok;              /* on the prompt machine, until it has been sent */
    int64_t reserved_tok;          /* on the token machine, until it has arrived */
    int64_t reserved_ns;           /* since then */
    int64_t bytes_sent;
    int transfer;    /* number of the present one: others do not arrive any more */
    bool live;       /* it is in the cluster */
    bool prompting;  /* its prompt is not computed */
    bool has_tokens; /* t decodes it */
    bool on_token_machine, sending;
    bool arrived_early; /* its transfer was to end with a step that takes longer now */
    enum { CLUSTER_STAYS, CLUSTER_RESENDS, CLUSTER_RESTARTS } after_failure;
    struct cluster_request *next; /* in an inbox, or unused */
    struct cluster_request *next_of_all;
};

struct cluster_machine {
    struct cluster *cluster;
    const struct cluster_machine_opts *o;
    int index;
    enum cluster_pool home, pool;
    int n_out; /* outages that it is in; above 0 it gets no tasks */
    struct sched_loop loop;
    int64_t next_id;
    int64_t kv_used_tok;
    int64_t n_ahead;    /* steps of which only the last one's end is an event; 1: none */
    int64_t ahead_ns;   /* when the first of them began */
    double slowness[2]; /* 1 / speed, by kind */
    int64_t actual[CLUSTER_N_LOADS], known[CLUSTER_N_LOADS];
    int64_t n_tasks[2]; /* by kind */
    int64_t n_reserved; /* requests that have memory, on their way */
    struct cluster_request *inbox, **inbox_end; /* wait for memory here */
    bool retry_due;
    struct cluster_link in, out;
    int64_t mixed_since_ns;
};

struct cluster {
    struct cluster_opts o;
    struct cluster_machine *machines; /* [o.n_machines] */
    struct cluster_steps steps;       /* of them */
    struct cluster_events events;
    struct cluster_pools pools;
    struct cluster_candidate *candidates; /* [n_machines] scratch of a choice */
    struct cluster_request *unused, *all; /* all: that were ever allocated */
    int64_t n_live, last_ns;
    bool more;       /* requests will come */
    bool runs_ahead; /* nobody sees the single steps */
    int rc;          /* the first error of a callback */
    struct cluster_stat stat;
};

static inline bool cluster_goes_elsewhere(const struct cluster_request *q)
{
    return q->has_tokens && q->t != q->p;
}

/* sim.c */
void cluster_fail(struct cluster *c, int rc); /* the run ends after this event */
void cluster_push(struct cluster *c, enum cluster_event_kind kind, int64_t t_ns,
                  int machine, struct cluster_request *q);
void cluster_write_log(struct cluster *c, const char *what, int64_t a, int64_t b,
                       int64_t n);
void cluster_finish(struct cluster_request *q, bool refused);
/* The request has its machines: it goes to the first. */
void cluster_enter(struct cluster_request *q);

/* assign.c: choose both machines of a request and count it as theirs; only the one for its tokens;
 * no longer count it. */
void cluster_assign(struct cluster *c, struct cluster_request *q);
void cluster_assign_tokens(struct cluster *c, struct cluster_request *q);
void cluster_unassign(struct cluster_request *q);
void cluster_unassign_tokens(struct cluster_request *q);
void cluster_maybe_return(struct cluster_machine *m); /* to its own pool */
void cluster_report_all(struct cluster *c);

/* machine.c. Memory is taken and given back by cluster_kv_*(), and lost by failures. */
MUST int cluster_open_machine(struct cluster_machine *m, struct cluster *c, int index);
int64_t cluster_admissible_tok(const struct cluster_machine *m);
bool cluster_kv_take(struct cluster_machine *m, int64_t n_tok,
                     bool to_grow); /* false: none */
void cluster_kv_give(struct cluster_machine *m, int64_t n_tok);
void cluster_add_request(struct cluster_machine *m, struct cluster_request *q);
void cluster_start_step(struct cluster_machine *m); /* unless it computes one */
void cluster_end_step(struct cluster_machine *m);
/* Something other than the machine's own steps is about to change it: of the steps that it runs
 * ahead of events, those that have ended by now are done, and the present one ends by an event. */
void cluster_interrupt(struct cluster_machine *m);

/* handover.c */
void cluster_begin(struct cluster_request *q); /* at its prompt machine */
void cluster_send_early(struct cluster_request *q, int64_t step_ns);
void cluster_send(struct cluster_request *q);
void cluster_serve_inbox(struct cluster_machine *m);
void cluster_arrived(struct cluster_request *q);

/* outage.c */
MUST int cluster_outages_check(const struct cluster_opts *o);
void cluster_outages_expect(struct cluster *c);
void cluster_outage_begins(struct cluster *c, const struct cluster_outage *o);
void cluster_outage_ends(struct cluster *c, const struct cluster_outage *o);

#endif
