/* step/step.h - one step over a batch, by a list of operators (step/op.h): what those in op/ share.
 *   Threads: all threads of the phase call each operator. */
#ifndef STEP_STEP_H
#define STEP_STEP_H

#include "step/context.h"

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
    const float *norm_w; /* [k] weights of the norm, applied while packing; NULL: none */
    const float *norm_b; /* [k] its bias; NULL: none */
    float scale;         /* of each row, while packing; 0: none */
};

/* The model's norm of a row of n floats; w is not NULL, and b may be. */
static inline void model_norm(const struct model *m, float *out, const float *x,
                              const float *w, const float *b, int64_t n)
{
    if (m->c.layer_norm)
        m->kern.v[KERN_LAYERNORM]->fn.layernorm(out, x, w, b, n, m->c.norm_eps);
    else
        m->kern.v[KERN_RMSNORM]->fn.rmsnorm(out, x, w, n, m->c.norm_eps);
}
/* The rows that a layer's MLP or router reads. */
static inline struct model_rows model_ffn_rows(const struct model_thread_ctx *w,
                                               int layer)
{
    const struct model_layer *l = &w->m->layers[layer];
    bool parallel = w->m->c.parallel;

    return (struct model_rows){.x = w->x,
                               .ld = w->m->ld_x,
                               .k = w->m->c.dim,
                               .n = w->n_rows,
                               .norm_w = parallel ? l->attn_norm : l->ffn_norm,
                               .norm_b = parallel ? l->attn_norm_bias : l->ffn_norm_bias};
}

/* Where products add their sum: the residual stream, or what is summed apart from it. */
static inline float *model_sum_at(const struct model_thread_ctx *w)
{
    return w->apart ? w->rank->branch : w->x;
}
/* Add [dim] to the sum of each row. Ends with a barrier of the rank's threads. */
void model_add_bias(struct model_thread_ctx *w, const float *bias);
/* From here on sums are apart from the stream, until model_branch_add() adds them to it, normalised
 * with norm_w unless it is NULL. Both end with a barrier of the rank's threads. */
void model_branch(struct model_thread_ctx *w);
void model_branch_add(struct model_thread_ctx *w, const float *norm_w);

/* The job that multiplies the step's rows with `mat`, the rank's part of a matrix. The
 * caller sets the activations, the result and the epilogue. */
struct kern_gemm_job model_job(const struct model_thread_ctx *w, enum model_mat which,
                               const struct kern_mat *mat);
/* The same for `rows` of them. */
struct kern_gemm_job model_job_of(const struct model_thread_ctx *w, enum model_mat which,
                                  const struct kern_mat *mat, int64_t rows);
/* Pack block b of n_blocks of the activations to where it is among all of them, at `dst`. */
void model_pack_block(struct model_thread_ctx *w, const struct kern_gemm_job *j,
                      void *dst, const struct model_rows *in, int64_t b,
                      int64_t n_blocks);
/* Pack the activations for the job's kernel and return them: lent, valid until the
 * rank's next call. All threads of the rank call it. */
const void *model_pack(struct model_thread_ctx *w, const struct kern_gemm_job *j,
                       const struct model_rows *in);
/* Compute this thread's part of the product. Panels are assigned in groups of
 * `together`. */
void model_linear(struct model_thread_ctx *w, struct kern_gemm_job *j, int64_t together);
/* Add to model_sum_at() the sum over all ranks of in * mat, where `mat` has the rank's rows of the
 * matrix. Ends with a barrier of the rank's threads. */
void model_linear_residual(struct model_thread_ctx *w, enum model_mat which,
                           const struct kern_mat *mat, const struct model_rows *in);

/* Add to model_sum_at() the sum of y over all ranks, which each rank's threads have written. Ends
 * with a barrier of the rank's threads. */
void model_add_ranks(struct model_thread_ctx *w);

/* Add to model_sum_at() the sum of n_parts parts in their order, whichever rank computes them: fn
 * writes to out [rows, panels p_lo .. p_hi) the thread's columns of part i, if its rank has that
 * part. Ends with a barrier of the rank's threads. */
typedef void (*model_part_fn)(struct model_thread_ctx *w, void *ctx, int i, int64_t p_lo,
                              int64_t p_hi, float *out);
void model_sum_parts(struct model_thread_ctx *w, int n_parts, model_part_fn fn,
                     void *ctx);

/* model_linear_residual() for a deterministic model: every sum adds the parts between
 * `boundaries` in their order, whichever rank computes them. The rank's rows begin at row `lo`. */
void model_linear_batch_invariant(struct model_thread_ctx *w, enum model_mat which,
                                  const struct kern_mat *mat, const struct model_rows *in,
                                  const struct model_reduction_boundaries *boundaries,
                                  int64_t lo);

/* Normalise queries, and keys, over all heads of a token, of all ranks (OLMo 2). Heads then belong
 * to no thread. */
void model_norm_rows(struct model_thread_ctx *w, int layer);
/* Normalise queries and keys (Qwen3), rotate them (RoPE), store keys and values, and compute
 * attention. Reads
 * rank->qkv and the keys and values of earlier tokens, and writes rank->attn. */
void model_attend(struct model_thread_ctx *w, int layer);
/* The same, with attention itself by a function. The step has one chunk. */
void model_attend_by(struct model_thread_ctx *w, int layer,
                     const struct model_attend_by *by);

/* The MLP of a mixture of experts: add to model_sum_at() its output for every row. Ends with a
 * barrier of the rank's threads. */
void model_experts(struct model_thread_ctx *w, int layer);

/* Compute the part of a step that belongs to this process's ranks. ERR_STATE: a
 * collective was aborted. */
MUST int model_step_run(struct model *m, struct model_step *s);

#endif
