/* step/context.h - what a step works on: the ranks of a phase with their memory and
 * schedules, which ranks/ makes, the running step, and each thread's view of it.
 *
 * Threads: all threads of the phase share a step; each thread has its own context. */
#ifndef STEP_CONTEXT_H
#define STEP_CONTEXT_H

#include "base/clock.h"
#include "model/shard.h"
#include "par/coll.h"
#include "step/ahead.h"
#include "step/attend.h"
#include "step/offload.h"
#include "step/op.h"
#include "step/stored.h"

/* One rank of a phase. Ranks share only the memory of the collectives and, where several
 * ranks divide a KV group, its keys and values. */
struct model_rank {
    struct par_group group; /* its threads */
    struct model_tp_shard shard;
    struct model_view *layers; /* [n_layers] */
    /* [max_step_tok] each: the schedule for m rows is [m - 1], made for the type of the
     * first layer. All ranks have the same schedules of the head, which all threads of
     * the phase compute together. */
    const struct kern_schedule *schedules[MODEL_N_MATS];

    int64_t ld_qkv, ld_attn, ld_h; /* floats from a row to the next */
    /* [max_step_tok, ld]; in a row of qkv the columns of a split V follow the others */
    float *x, *x_last, *y, *qkv, *attn, *h;
    /* What the projections give and what heads attended to: qkv and attn, but with latent attention
     * rows of their own, of heads of model_q_dim() and, behind them, the key; and of head_dim. */
    int64_t ld_proj, ld_heads;
    float *proj, *heads;
    float *q_a; /* [max_step_tok, q_rank, padded]: what queries of low rank are made of */
    /* Packed rows of one head for each thread, of latent attention. */
    size_t head_packed_bytes;
    char *head_packed;
    /* For a mixture of experts: normalised rows of x, the router's products, and for each pair of a
     * row and an expert (behind them for a shared expert) what gate and up, and down, give. */
    int64_t ld_router, ld_expert_h;
    float *normed, *router, *expert_h, *expert_y;
    float *branch; /* [max_step_tok, ld_x] outputs before they are added to x, or NULL */
    /* [max_step_tok, n_heads + n_kv_heads] sums of squares of query and key heads; where they are
     * normalised together */
    float *head_sums;
    float *share, *lse; /* [max_step_tok, head_dim], [max_step_tok]; where seq_n > 1 */
    void *a_packed;     /* packed activations that its threads share */
    int64_t ld_packed;  /* the longest row of them */
    float *partial;     /* partial products, phase->partial_bytes */
    /* The error of the running step: OK until a collective is aborted. The rank's threads
     * write it between two barriers of the rank and read it after the second. */
    atomic_int rc;
    /* [n_threads]: thread i reduces with thread i of the other ranks. */
    struct par_rank *endpoints;
};

struct model_phase {
    struct model *m; /* lent */
    int n_ranks, n_threads;
    int64_t max_step_tok;
    const struct par_coll *coll; /* NULL: chosen by message size */
    bool shares_kv;              /* a KV group has several ranks */
    bool shares_seq;             /* a query head has several ranks */
    bool multiprocess;           /* each rank is in another process */
    struct model_ops ops;        /* of its steps */
    model_stored_fn stored;      /* NULL: nobody wants to know */
    void *stored_ctx;
    const struct model_offload *offload; /* NULL: the CPU computes all */
    int64_t offload_rows;                /* that the CPU computes in this layer */
    const float *offload_y; /* what it computed of this layer's experts; NULL: nothing */
    atomic_int n_stored;    /* in this step: ranks that stored a layer, over all layers */
    struct model_rank *ranks;
    struct model_thread_slot *thread_slots; /* [m->n_threads], by the team's thread */
    int n_team; /* a step uses the team's threads 0 .. n_team - 1 */
    struct model_view *views;
    struct kern_mat *mats; /* that views point into */
    struct par_rank *endpoints;
    struct kern_schedule *schedules; /* the tables that ranks point into */
    /* In a deterministic model: the parts of sums, [2][parts][rows][columns], which all
     * ranks write and read. Each of the two halves has sums_floats floats. */
    float *sums;
    size_t sums_floats;
    void *act, *comms;
    size_t act_bytes, comms_bytes, partial_bytes;
};

/* The most floats in one all-reduce. Longer messages are cut into pieces, so that a piece
 * and the buffers of its collective stay in the second-level cache. */
#define MODEL_MESSAGE_FLOATS ((size_t)32 << 10)

struct model_step {
    struct model_phase *phase;
    const struct model_chunk *chunks;
    int n_chunks;
    int64_t n_tok, n_logits;
    float *logits;
};

/* One thread's view of the running step. */
struct model_thread_ctx {
    struct model_step *step;
    struct model *m;
    struct model_phase *phase;
    struct model_rank *rank; /* the rank that this thread belongs to */
    struct par_self *self;
    struct model_scratch *own;
    int id, n;           /* thread `id` of the rank's n threads */
    float *x;            /* the residual stream: rank->x, at the end rank->x_last */
    int64_t n_rows;      /* rows of x */
    const int64_t *rows; /* [n_rows] rows of rank->attn to read; NULL: the first n_rows */
    bool last;           /* in the last layer, which continues with wanted rows only */
    bool
        own_heads; /* it projected whole KV groups itself: it attends without a barrier */
    bool apart;    /* products add to rank->branch, not to x */
    bool done;     /* an operator has ended the step */
    int n_halves;  /* how often a half of phase->sums was used; they alternate */
    struct model_ahead ahead; /* of the next layer's attention */
    uint64_t t_ns;            /* time when thread 0's present operation began */
};

/* Add the time since the last call to the total of `what`. Only thread 0 is timed. */
static inline void model_lap(struct model_thread_ctx *w, enum model_op_class what)
{
    uint64_t now;

    if (w->self->id != 0)
        return;
    now = clock_ns();
    w->m->times_ns[what] += now - w->t_ns;
    w->t_ns = now;
}

/* Add what a rank's handle has waited for other ranks to the thread's own waits. */
static inline void model_rank_waited(struct par_rank *r, struct par_team *t, int thread)
{
    par_team_add_wait(t, thread, r->wait_ns);
    r->wait_ns = 0;
}

/* Record that a collective was aborted, so that the rank ends the step. */
static inline void model_fail(struct model_thread_ctx *w, int rc)
{
    if (rc != OK)
        atomic_store_explicit(&w->rank->rc, rc, memory_order_relaxed);
}

#endif
