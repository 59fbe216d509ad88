/* cluster/impl.h - the state of a simulated cluster, shared by its files. */
#ifndef CLUSTER_IMPL_H
#define CLUSTER_IMPL_H

#include "cluster/cluster.h"
#include "cluster/event.h"
#include "cluster/transfer.h"
#include "sched/loop.h"

struct cluster_request {
    struct sched_request r; /* first; on the machine where it is */
    struct cluster_done d;  /* what will be said of it */
    int64_t kv_tok;         /* its memory on that machine */
    int64_t held_tok;       /* on the prompt machine, until it has been sent */
    int64_t reserved_tok;   /* on the token machine, until it has arrived */
    int64_t reserved_ns;    /* since then */
    int64_t bytes_sent;
    bool on_token_machine, sending;
    bool arrived_early; /* its transfer was to end with a step that takes longer now */
    struct cluster_request *next; /* in an inbox, or unused */
    struct cluster_request *next_of_all;
};

struct cluster_machine {
    struct cluster *cluster;
    const struct cluster_machine_opts *o;
    int index;
    enum cluster_pool home, pool;
    struct sched_loop loop;
    bool busy; /* with a step, of: */
    enum cluster_pool step_kind;
    double step_left_ns, step_rate; /* alone, at step_since_ns; 1 or less */
    int64_t step_since_ns, step_end_ns;
    int64_t next_id;
    int64_t kv_used_tok;
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
    struct cluster_events events;
    struct cluster_pools pools;
    struct cluster_candidate *candidates; /* [n_machines] scratch of a choice */
    struct cluster_request *unused, *all; /* all: that were ever allocated */
    int64_t n_live, last_ns;
    int64_t n_retries; /* that are due */
    int64_t
        n_work_events; /* that are due and can finish something: not reports, retries */
    bool more;         /* requests will come */
    int rc;            /* the first error of a callback */
    struct cluster_stat stat;
};

/* assign.c */
/* Choose both machines of a request and count it as theirs. */
void cluster_assign(struct cluster *c, struct cluster_request *q);
void cluster_report_all(struct cluster *c);
void cluster_maybe_return(struct cluster_machine *m);

/* machine.c */
MUST int cluster_machine_open(struct cluster_machine *m, struct cluster *c, int index);
/* Memory of a machine is taken and given back here only. false: there is none. */
bool cluster_kv_take(struct cluster_machine *m, int64_t n_tok, bool to_grow);
void cluster_kv_give(struct cluster_machine *m, int64_t n_tok);
void cluster_machine_start(struct cluster_machine *m); /* a step, where it can */
void cluster_machine_step_end(struct cluster_machine *m);
void cluster_machine_add(struct cluster_machine *m, struct cluster_request *q);

/* contention.c */
/* A step that takes step_ns alone begins, or the present one has ended: the event of its end, and
 * of those of its neighbours, whose speed changes. */
void cluster_step_begins(struct cluster_machine *m, enum cluster_pool kind,
                         int64_t step_ns);
void cluster_step_ended(struct cluster_machine *m);

/* move.c */
/* A request that has arrived goes to its prompt machine, now or when there is memory. */
void cluster_begin(struct cluster_request *q, struct cluster *c);
/* The prompt's step begins and takes step_ns: send layer by layer where that is due. */
void cluster_send_early(struct cluster_request *q, struct cluster *c, int64_t step_ns);
/* The prompt is computed. */
void cluster_send(struct cluster_request *q, struct cluster *c);
void cluster_serve_inbox(struct cluster_machine *m);
void cluster_arrived(struct cluster_request *q, struct cluster *c);

/* sim.c */
void cluster_fail(struct cluster *c, int rc); /* the first one is kept */
void cluster_push(struct cluster *c, enum cluster_event_kind kind, int64_t t_ns,
                  int machine, struct cluster_request *q);
void cluster_log(struct cluster *c, const char *what, int64_t a, int64_t b, int64_t n);
void cluster_finish(struct cluster *c, struct cluster_request *q, bool refused);

#endif
