/* model/step.h - a running step, as the files that compute it share it: forward.c is the
 * order of things, linear.c multiplies, attention.c attends.
 *
 * Threads: a step is shared; each thread has its own context. */
#ifndef MODEL_STEP_H
#define MODEL_STEP_H

#include "base/clock.h"
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
    struct model_rank *rank; /* this thread's */
    struct par_self *self;
    struct model_scratch *own;
    int id, n;           /* among the rank's threads */
    float *x;            /* the residual stream: rank->x, at the end rank->x_last */
    int64_t n_rows;      /* of x */
    const int64_t *rows; /* rows to read instead of 0 .. n_rows; NULL: those */
    bool last;           /* the last layer: only rows that want logits go on */
    int n_halves;        /* of phase->sums used so far: they take turns */
    uint64_t t_ns;       /* when thread 0's present operation began */
};

/* The time since the last lap was spent on `what`. */
static inline void model_lap(struct model_thread_ctx *w, enum model_op_class what)
{
    uint64_t now;

    if (w->self->id != 0)
        return;
    now = clock_ns();
    w->m->times_ns[what] += now - w->t_ns;
    w->t_ns = now;
}

/* The rank cannot go on: it met others that aborted. */
static inline void model_fail(struct model_thread_ctx *w, int rc)
{
    if (rc != OK)
        atomic_store_explicit(&w->rank->rc, rc, memory_order_relaxed);
}

/* The rank's threads wait for each other. */
void model_sync(struct model_thread_ctx *w, enum model_op_class before);
/* The threads of all ranks do. */
void model_sync_all(struct model_thread_ctx *w, enum model_op_class before);

/* Rows of a matrix of activations, normalised on the way when norm_w is given. */
struct model_rows {
    const float *x;
    int64_t ld, k, n;
    const int64_t *rows; /* NULL: 0 .. n */
    const float *norm_w;
};

/* A product of the step's rows with the rank's part of a matrix, but for activations and
 * result. */
struct kern_gemm_job model_job(const struct model_thread_ctx *w, enum model_mat which,
                               const struct kern_mat *mat);
/* The activations packed for the job's kernel. */
const void *model_pack(struct model_thread_ctx *w, const struct kern_gemm_job *j,
                       const struct model_rows *in);
/* This thread's part of the product; panels are dealt out in groups of `together`. */
void model_linear(struct model_thread_ctx *w, struct kern_gemm_job *j, int64_t together);
/* x += in * mat, summed over the ranks, of which each has its rows of mat; ends in step
 * with the rank's other threads. */
void model_linear_residual(struct model_thread_ctx *w, enum model_mat which,
                           const struct kern_mat *mat, const struct model_rows *in);

/* The same for a deterministic model: every sum over `boundaries`, in their order, whoever
 * computes which of them. The rank's rows begin at row `lo` of all. */
void model_linear_batch_invariant(struct model_thread_ctx *w, enum model_mat which,
                                  const struct kern_mat *mat, const struct model_rows *in,
                                  const struct model_reduction_boundaries *boundaries,
                                  int64_t lo);

/* Rotate queries and keys, store keys and values, attend: from rank->qkv, and from the
 * keys and values of the tokens before, to rank->attn. own_heads: this thread computed the
 * projections of whole KV groups, and needs nobody else's. */
void model_attend(struct model_thread_ctx *w, int layer, bool own_heads);

#endif
