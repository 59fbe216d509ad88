/* cluster/cluster.h - a simulated cluster that serves prompts and tokens on separate machines.
 *
 * Discrete events in virtual nanoseconds. Each machine runs the engine's own serving loop
 * (sched/loop) with a policy of sched/policy; a performance model says how long its steps take.
 * The cluster's scheduler assigns a prompt machine and a token machine to each request on its
 * arrival. Keys and values move between them over links. One seed gives one history, to the
 * byte of its log. Memory is in proportion to the live requests, time to the tokens.
 *
 * The rules:
 *   - A request goes to the machine of its kind's own pool that the router chooses. Where
 *     that machine's load is above the threshold, it goes to one of the mixed pool by the same
 *     rule; where that is not possible either, one of the opposite pool moves there.
 *   - A machine returns from the mixed pool at the first report at which it has no task of the
 *     opposite kind. One that stays for longer than repurpose_ns changes its kind.
 *   - A token machine has memory for the keys and values before they are sent. Until it has, they
 *     stay on the prompt machine, in order of arrival.
 *   - The first token comes from the prompt machine. The token machine computes its keys and
 *     values together with the second token.
 * Paper: Splitwise IV.   Threads: one owner. */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cluster/perf.h"
#include "cluster/pools.h"
#include "sched/sched.h"

struct cluster_machine_opts {
    enum cluster_pool home; /* CLUSTER_MIXED: all phases of its requests, for ever */
    const struct cluster_perf *perf;
    int64_t kv_tok;       /* memory for keys and values */
    double link_gbps;     /* GB/s in each direction; 0: sending takes no time */
    double link_alpha_ns; /* constant per transfer */
    int controller; /* machines with the same number share a memory controller; 0: none */
    /* By kind of task, of the cluster's fastest, which has 1; 0: 1. Where the cluster's scheduler
     * chooses by speed. */
    double speed[2];
    bool own_kind_only; /* it never gets a task of the other kind */
};

/* A time without a machine. Drained, it gets no tasks and finishes those that it has. In a failure
 * it loses its memory: who had keys and values there, or on the way there, starts again elsewhere
 * from the tokens known so far; who was to decode there has another machine for that. */
struct cluster_outage {
    int64_t t_ns, until_ns;
    int machine;
    bool drained; /* false: it fails */
};

/* Machines on one memory controller slow each other: while a neighbour runs a step of kind n, a
 * step of kind k that alone takes t takes slowdown[k][n] t; with several neighbours, by the product
 * of theirs. A step with a prompt is one of prompts.   [CLUSTER_PROMPT or CLUSTER_TOKEN] */
struct cluster_contention {
    double slowdown[2][2]; /* each at least 1 */
};

/* Where splitwise-sim differs from the paper. All false: the paper. */
struct cluster_quirks {
    bool
        full_length_kv; /* a request's memory is that of its full length from the start */
    bool free_links;    /* any number of flows at once */
    bool
        tenfold_layer_wise; /* a layer-wise transfer is a serial one at 10 x the bandwidth */
    bool slow_mixed;        /* a mixed step takes 1.1 x the time of its prompts */
    bool flat_token_time; /* below 128 sequences a token step takes the time of one */
    bool needs_queue;     /* prompts: above the threshold only where requests also wait */
    bool return_when_idle; /* from the mixed pool only with nothing to do at all */
    bool retry; /* for memory on the token machine each second, not when it is freed */
};

struct cluster_arrival {
    int64_t t_ns;               /* not before the one before */
    int64_t n_prompt, n_output; /* tokens, each at least 1 */
};

struct cluster_done {
    int64_t number; /* in order of arrival, from 0 */
    int64_t arrival_ns, first_ns, last_ns, max_gap_ns;
    int64_t n_prompt, n_output;
    int64_t n_tokens, n_prompts, n_transfers; /* that it got, prompts computed, KV sent */
    int64_t n_paused, n_preempted;
    int n_restarts;                    /* after failures */
    int prompt_machine, token_machine; /* the last ones */
    bool refused; /* longer than the machine's memory; the times are 0 */
};

struct cluster_decision {
    int64_t t_ns;
    enum cluster_pool kind; /* CLUSTER_PROMPT or CLUSTER_TOKEN: of the task */
    enum cluster_pool pool; /* whose machines are the candidates */
    const struct cluster_choice *choice;
    int chosen;       /* index into choice->machines */
    int64_t own_load; /* of the machine chosen in the own pool; -1: that pool is empty */
    int64_t mixed_load; /* the same of the mixed pool, where it was tried */
    int64_t threshold;
};

struct cluster_step {
    int machine;
    enum cluster_pool pool;
    int64_t start_ns,
        end_ns; /* with contention: as if the neighbours went on as they are */
    int64_t n_prompts, n_prompt_tok, n_decode;
};

struct cluster_move {
    int64_t t_ns, request;
    int64_t n_tok, kv_bytes; /* bytes: over all layers */
    int from, to;
};

struct cluster_machine_state {
    enum cluster_pool home, pool;
    int64_t kv_used_tok;
    int64_t n_tasks[2]; /* by kind: waiting, running or on their way */
};

/* Calls that a caller may ask for; members may be NULL. */
struct cluster_observer {
    void *ctx;
    void (*routed)(void *ctx, const struct cluster_decision *d);
    void (*step)(void *ctx, const struct cluster_step *s);  /* at its start */
    void (*moved)(void *ctx, const struct cluster_move *m); /* keys and values arrived */
    void (*done)(void *ctx, const struct cluster_done *d);
    /* For each machine after each event. */
    void (*after)(void *ctx, int machine, const struct cluster_machine_state *s);
};

struct cluster_opts {
    const struct cluster_machine_opts *machines; /* [n_machines] lent */
    int n_machines;
    int n_layers;
    int64_t
        kv_bytes_per_tok; /* of all layers; grouped-query attention makes it smaller */
    const struct cluster_router *router;
    enum cluster_load_kind prompt_load, token_load; /* what the router compares */
    int64_t prompt_threshold, token_threshold;      /* of those loads */
    int64_t report_ns;    /* period of the machines' reports; 0: after each step */
    int64_t repurpose_ns; /* 0: never */
    const struct sched_policy *policy;
    int64_t max_batch_prompt_tok; /* that several prompts may share a step with */
    int64_t max_step_tok;         /* of a step; 0: a long prompt is never cut */
    int64_t max_seqs;             /* on one machine */
    double keep_frac; /* memory that stays free when a request is admitted, for growth */
    int64_t layer_wise_tok; /* shorter prompts are sent serially */
    struct cluster_quirks quirks;
    /* A prompt is computed when the token machine has memory for it, which it gives between its
     * steps, as real machines do it (roles/); false: keys and values wait for memory on the
     * prompt machine, as above. */
    bool reserve_first;
    const struct cluster_contention *contention; /* NULL: none. Lent. */
    /* Loads are compared as the time that they and the task take on each machine, by its speed. */
    bool by_speed;
    const struct cluster_outage *outages; /* [n_outages] or NULL. Lent. */
    int n_outages;
    /* Each step is an event. Otherwise several steps with the same sequences may be one, which
     * changes no time of a request, but for the order of what happens in the same nanosecond. */
    bool every_step;
    double *busy_ns; /* NULL, or [n_machines] set at the end. Lent. */
    uint64_t seed;
    /* The next request. false: there are no more. */
    bool (*next)(void *ctx, struct cluster_arrival *out);
    void *next_ctx;
    struct cluster_observer observer;
    const bool
        *stop; /* NULL, or: an observer sets it to end the run after the event. Lent. */
    FILE *log; /* NULL: none. One line an event, integers only. Lent. */
};

struct cluster_stat {
    int64_t n_arrived, n_done, n_refused, n_events, n_steps;
    int64_t end_ns;
    int64_t n_live_max;
    double live_ns;              /* integral of the live requests over time */
    double reserved_idle_tok_ns; /* of memory on token machines before its data arrived */
    double busy_ns[2];           /* of all machines, by kind of their steps */
    int64_t n_pool_moves, n_repurposed, n_preempted, n_failures, n_restarts;
    int64_t n_same_machine, n_transferred;
    int64_t kv_used_tok; /* at the end: 0 */
};

/* The paper's scheduler with the defaults of this project. Sets all but machines, model, requests
 * and observers. ERR_NOTFOUND: a plug-in is missing. */
MUST int cluster_opts_init(struct cluster_opts *o);
/* As splitwise-sim does it. */
void cluster_opts_splitwise_sim(struct cluster_opts *o);

/* ERR_ARG: what cluster_run() refuses. */
MUST int cluster_opts_check(const struct cluster_opts *o);
/* Run to the end of the requests, or to `stop`. ERR_ARG: options; ERR_STATE: requests are left
 * that no event can finish, or a request is earlier than the one before. */
MUST int cluster_run(struct cluster_stat *out, const struct cluster_opts *o);

#endif
