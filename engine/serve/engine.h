/* serve/engine.h - the engine behind serve.h, for the files of this module only: open.c assembles
 * it, requests.c has the requests outside of the loop, serve.c runs steps, memory.c lends the pool
 * to the loop, lengths.c predicts how long requests will be, draft.c guesses what comes next,
 * describe.c and placement.c report. */
#ifndef SERVE_ENGINE_H
#define SERVE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/series.h"
#include "grammar/grammar.h"
#include "kv/buckets.h"
#include "kv/kv.h"
#include "kv/predict.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "model/sampler.h"
#include "tokenizer/tokenizer.h"
#include "par/team.h"
#include "plan/plan.h"
#include "sched/loop.h"
#include "serve/handoff.h"
#include "serve/phase_choice.h"
#include "serve/serve.h"
#include "topo/machine.h"
#include "tune/schedule_cache.h"

/* The number of requests that a policy sees, which bounds the arrays. Later ones wait in the
 * queue, in order. */
#define SERVE_VIEW_MAX 1024

struct serve_seq {
    struct sched_request r; /* first: it is what the loop knows */
    int32_t *ids; /* [n_prompt + max_new]: the prompt, then its n_new new tokens */
    enum serve_finish finish;
    bool overflowed; /* it outgrew its memory, so what was predicted is too short */
    bool ignore_eos;
    int32_t stop_ids[SERVE_STOP_IDS_MAX]; /* the request's own */
    int n_stop_ids;
    int64_t n_scored; /* the first of r's new tokens, which are given in ids */
    struct kv_prediction prediction; /* with a predictor */
    atomic_bool canceled;            /* set by any thread */
    struct kv_slot kv;
    struct sampler *sampler;
    struct grammar_matcher *matcher; /* NULL: any text */
    serve_token_fn on_token;
    int64_t *n_reused;    /* the caller's; NULL: nobody asks */
    uint64_t *started_ns; /* the same */
    void *ctx;
    /* The sequence's part of the present step: the guesses behind its known ids; its first row of
     * logits, its rows, and how many of them are taken. */
    int n_draft, row, n_rows, n_taken;
    /* With draft_adapt: guesses that the next step may have; if not positive, no guesses until one
     * more step than its size has passed. */
    int draft_most;
    struct kv_slot
        draft_kv; /* of the draft model, which has read the first draft_ctx ids */
    int64_t draft_ctx;
    struct serve_seq *next;       /* in the queue, or outside of the loop */
    struct serve_handoff handoff; /* side 0: none */
    struct kv_slot kv_elsewhere;  /* with handoff.slot: what it was */
    /* Written under the lock. has_memory: outside of the loop. The others are set by any thread:
     * arrived: the token side may go on; released: no transport needs the memory. */
    bool has_memory, arrived, released;
};

/* How many of the bytes of memory are in use, over the time for which any were reserved. */
struct serve_kv_use {
    int64_t time_ns;
    double inner_ns,
        outer_ns; /* sums over steps: share of the reserved, of all; x time */
    struct series inner, outer; /* by steps */
};

/* The phases of opening an engine, in this order. weights: reading and packing. steps: their
 * kernels, schedules, activations and processes. kv: memory for keys and values. */
#define SERVE_LOAD_PHASES(X) X(team) X(file) X(weights) X(steps) X(kv) X(tokenizer)
#define SERVE_LOAD_ID(name)  SERVE_LOAD_##name,
enum serve_load_phase { SERVE_LOAD_PHASES(SERVE_LOAD_ID) SERVE_LOAD_N };

/* Sequences that have ended, whose keys and values are kept for requests that begin alike, until
 * their memory is needed. memory.c */
#define SERVE_KEPT_MAX 256
struct serve_kept {
    struct kv_slot kv;
    int32_t *ids; /* [n_tok] whose keys and values are there; owned */
    int64_t n_tok;
    int64_t used_at; /* the later, the less likely to be given up */
};
struct serve_reuse {
    struct serve_kept kept[SERVE_KEPT_MAX];
    int n_kept;
    int64_t clock;
    int64_t kept_tok; /* that their memory counts as */
    /* Requests that began with tokens of others, and these tokens. Read by any thread. */
    atomic_llong n_requests, n_tok;
};

/* Guesses of the next tokens. draft.c */
struct serve_drafting {
    const struct serve_drafter *by; /* NULL: nobody guesses */
    void *state;
    struct serve_seq **seqs; /* [max_seqs] that get guesses in the present step */
    atomic_llong n_guessed, n_checked, n_right, ns;
};

/* The predictor of requests' lengths, and the buckets that learn from them. lengths.c */
struct serve_lengths {
    const struct kv_predictor *predictor; /* NULL: none */
    void *state;
    struct kv_learned *learned; /* of kv_predict_file; NULL: none */
    pthread_mutex_t lock;       /* of the predictor, which any thread that submits asks */
    struct kv_buckets *buckets; /* NULL: the allocator does not learn */
    int64_t learn_ns;           /* time spent on bounds, by the stepping thread */
    atomic_llong n_predicted, predict_ns;
};

struct serve_engine {
    struct serve api; /* first */
    char isa_words[128];
    struct cpu_budget budget;
    struct plan plan;
    struct par_team *team;
    struct model *model;
    /* The phases of prefill and decode; the same one where the plan does not distinguish
     * them. */
    struct model_phase *prefill, *decode;
    char model_format[16];
    /* Where schedules were given: those in use, those of them that were tuned, and
     * hash_fnv1a() of the texts of all in use. */
    int64_t n_schedules, n_tuned;
    uint64_t schedules_hash;
    struct par_timings
        sums[SERVE_N_PHASES]; /* of the choice of an all-reduce; n = 0: none */
    struct kv_pool *pool;
    const struct serve_offload *offload; /* lent; NULL: none */
    const struct serve_pace *pace;       /* lent; NULL: none */
    bool kv_mapped;                      /* another process can map it */
    int64_t kv_token_bytes;
    struct serve_lengths lengths;
    struct serve_reuse reuse;
    struct serve_drafting drafting;
    const struct sched_policy *policy;
    struct grammar_vocab *vocab; /* NULL: no tokenizer, or no token that ends a text */

    /* Written by the submitting threads under the lock. Only the stepping thread writes
     * loop.live, under the lock; it may read it without. */
    pthread_mutex_t lock;
    pthread_cond_t submitted;
    struct serve_seq *queue_head, **queue_tail;
    int64_t n_submitted;
    bool woken;
    struct sched_loop loop; /* its requests are struct serve_seq */
    /* Requests with a side that are not in the loop: of the token side before their keys and
     * values have arrived, of the prompt side when they have ended. As loop.live. */
    struct serve_seq *outside;
    bool waits; /* as of the last step: until memory is released, no request can go on */

    /* Used by the stepping thread only. */
    struct model_chunk
        *chunks;      /* [serve_draft_rows()] of the requests in loop.batch, in turn */
    float *logits;    /* [serve_draft_rows(), vocab] */
    int32_t *new_ids; /* [serve_draft_rows()] chosen from a row of logits each */
    struct serve_kv_use kv_use;
    /* Written by the stepping thread, read by any; most are copies of the loop's. */
    atomic_llong n_preempted, n_recomputed_tok, n_overflow, n_used_tok;
    int64_t n_steps, n_tok;
    struct serve_choice choice;
    const struct model_phase *last; /* phase of the previous step */
    int64_t n_switches;             /* steps whose phase differed from the previous one */
    double op_s[MODEL_T_N];
    struct serve_totals totals[SERVE_N_PHASES];
    double load_s[SERVE_LOAD_N];
    uint64_t load_mark_ns;          /* when the last phase of opening ended */
    struct topo_machine *machine;   /* NULL: unknown */
    char no_machine[160];           /* why it is unknown */
    struct model_numa_row kv_place; /* when it was touched */
    char kv_place_unknown[160];     /* why it is unknown */
    bool warned, warned_elsewhere;
};

static inline struct serve_engine *serve_engine_of(struct serve *s)
{
    return (struct serve_engine *)s;
}

/* The operations of serve.h, but close(). */
MUST int serve_engine_submit(struct serve *s, const struct serve_request *r, int64_t *id);
void serve_engine_cancel(struct serve *s, int64_t id);
MUST int serve_engine_step(struct serve *s, bool *busy);
void serve_engine_wait(struct serve *s, uint64_t timeout_ns);
void serve_engine_wake(struct serve *s);
void serve_engine_kv_stat(const struct serve *s, struct serve_kv_stat *out);
void serve_engine_draft_stat(const struct serve *s, struct serve_draft_stat *out);
MUST int serve_engine_describe(struct serve *s, json_t **out);

/* The team's thread for each CPU of a phase: its index in the plan's list of CPUs. */
void serve_number_threads(const struct plan *p, const struct plan_phase *f, int *threads);
/* The threads that decode by the plan and their memory nodes, for model_open(). Opens
 * s->machine where the topology is available. ERR_NOMEM. */
struct serve_numa_owners {
    struct model_numa_owners of; /* points into the other members */
    int threads[CPU_MAX], nodes[CPU_MAX];
};
MUST int serve_numa_owners(struct serve_engine *s, struct serve_numa_owners *out);
/* Record the memory nodes of the pool's pages after they were touched. ERR_NOMEM. */
MUST int serve_kv_numa_report(struct serve_engine *s);
/* The CPUs of the threads and the nodes of the pages. Misplaced ones give a warning, once.
 * New reference. */
json_t *serve_describe_placement(struct serve_engine *s);

/* The request is over; its memory is given back when the step is. */
static inline void serve_seq_end(struct serve_seq *q, int32_t id, const float *logits,
                                 enum serve_finish why)
{
    q->r.ended = true;
    q->finish = why;
    q->on_token(q->ctx, q->r.id, id, logits, why);
}
/* Open what requests need, after the model and s->lengths: the pool, the arrays of a batch and the
 * loop. close(): these and s->lengths; also after an error. ERR_NOMEM. */
MUST int serve_requests_open(struct serve_engine *s);
void serve_requests_close(struct serve_engine *s);
/* Open the loop over the pool, which is open. `drop`: as of sched/loop.h. ERR_NOMEM. */
MUST int serve_loop_open(struct serve_engine *s,
                         void (*drop)(void *ctx, struct sched_request *r));
/* Add a step that took step_ns to what is reported of the use of memory. */
void serve_count_memory(struct serve_engine *s, int64_t step_ns);

/* Like kv_reserve(), but gives up sequences that are kept where memory is short. */
MUST int serve_kv_reserve(struct serve_engine *s, const struct kv_need *need,
                          struct kv_slot *out);
void serve_reuse_close(struct serve_engine *s);

/* Open the predictor and the bounds of buckets that the options ask for. s->api.max_tok is set.
 * ERR_ARG, ERR_NOTFOUND: an option is wrong. */
MUST int serve_lengths_open(struct serve_engine *s);
void serve_lengths_close(struct serve_engine *s);
/* Predict the length of a new request. Any thread. ERR_ARG: the predictor lacks something. */
MUST int serve_predict(struct serve_engine *s, struct serve_seq *q);
/* The memory that a waiting request needs to be admitted. */
struct kv_need serve_need(const struct serve_engine *s, const struct serve_seq *q);
/* A request ended by itself: learn from its length. */
void serve_learn(struct serve_engine *s, const struct serve_seq *q);

void serve_seq_free(struct serve_seq *q);
/* Its memory, to the pool if it is the pool's. */
void serve_seq_give_back(struct serve_engine *s, struct serve_seq *q);
/* The loop has dropped a request: learn from it and free it. ctx: struct serve. */
void serve_seq_drop(void *ctx, struct sched_request *r);
/* Move requests from the queue to the loop. */
void serve_take_queue(struct serve_engine *s);
/* Free the live requests that have ended. */
void serve_drop_ended(struct serve_engine *s);

/* Requests outside of the loop: let those go on that can. Returns whether one has left. */
bool serve_outside_step(struct serve_engine *s);
void serve_outside_close(struct serve_engine *s);

#endif
