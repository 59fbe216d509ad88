/* model/step.h - the state of the running step, for the files that compute it: forward.c
 * has the order of operators, linear.c the matrix products, attention.c the attention.
 *
 * Threads: all threads of the phase share a step; each thread has its own context. */
#ifndef MODEL_STEP_H
#define MODEL_STEP_H

#include "base/clock.h"
#include "model/ahead.h"
#include "model/impl.h"

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
    int n_halves;        /* how often a half of phase->sums was used; they alternate */
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

/* Barrier of the rank's threads. `before`: the class of operators that the time up to the
 * barrier is added to; the wait itself counts as MODEL_T_WAIT. */
void model_sync(struct model_thread_ctx *w, enum model_op_class before);
/* The same for the threads of all ranks. */
void model_sync_all(struct model_thread_ctx *w, enum model_op_class before);

/* n rows of a matrix of activations, the input of a product. */
struct model_rows {
    const float *x;
    int64_t ld, k, n;    /* floats from a row to the next, floats of a row, rows */
    const int64_t *rows; /* [n] row numbers in x; NULL: 0 .. n - 1 */
    const float *norm_w; /* [k] RMSNorm weights, applied while packing; NULL: none */
};

/* The job that multiplies the step's rows with `mat`, the rank's part of a matrix. The
 * caller sets the activations, the result and the epilogue. */
struct kern_gemm_job model_job(const struct model_thread_ctx *w, enum model_mat which,
                               const struct kern_mat *mat);
/* Pack the activations for the job's kernel and return them: lent, valid until the
 * rank's next call. All threads of the rank call it. */
const void *model_pack(struct model_thread_ctx *w, const struct kern_gemm_job *j,
                       const struct model_rows *in);
/* Compute this thread's part of the product. Panels are assigned in groups of
 * `together`. */
void model_linear(struct model_thread_ctx *w, struct kern_gemm_job *j, int64_t together);
/* Add to x the sum over all ranks of in * mat, where `mat` has the rank's rows of the
 * matrix. Ends with a barrier of the rank's threads. */
void model_linear_residual(struct model_thread_ctx *w, enum model_mat which,
                           const struct kern_mat *mat, const struct model_rows *in);

/* The same for a deterministic model: every sum adds the parts between `boundaries` in
 * their order, whichever rank computes them. The rank's rows begin at row `lo`. */
void model_linear_batch_invariant(struct model_thread_ctx *w, enum model_mat which,
                                  const struct kern_mat *mat, const struct model_rows *in,
                                  const struct model_reduction_boundaries *boundaries,
                                  int64_t lo);

/* Normalise queries and keys (Qwen3), rotate them (RoPE), store keys and values, and compute
 * attention. Reads
 * rank->qkv and the keys and values of earlier tokens, and writes rank->attn. own_heads:
 * this thread computed the QKV projections of whole KV groups itself, so it needs no
 * barrier before it attends with them. */
void model_attend(struct model_thread_ctx *w, int layer, bool own_heads);

#endif
