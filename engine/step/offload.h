/* step/offload.h - lets something other than the CPU compute a part of each layer's MLP: some
 * hidden units of all rows, and all hidden units of the last rows. What it computes is added to
 * the residual stream after what the CPU computes, so that sums have another order than without
 * it.
 * Paper: ScheInfer III.   Threads: see below. */
#ifndef STEP_OFFLOAD_H
#define STEP_OFFLOAD_H

#include "model/shard.h"

struct model_thread_ctx;

struct model_offload {
    void *ctx;
    float *x; /* [max_step_tok, ld_x of the model] where rows are normalised; lent */
    const struct model_view
        *views; /* [n_layers] what the CPU computes: gate_up, down; lent */
    /* One thread of the phase calls both, in each layer. begin: rows of x are ready and stay as
     * they are; returns how many of them, the first ones, the CPU computes with its view. end:
     * add the rest to y[n_rows, ld_x]; an error ends the step. */
    int64_t (*begin)(void *ctx, int layer, int64_t n_rows);
    int (*end)(void *ctx, int layer, float *y);
};

/* The MLP of a layer by phase->offload and, for its view and rows, by `cpu`, which all threads of
 * the phase call. */
void model_offload_ffn(struct model_thread_ctx *w, int layer,
                       void (*cpu)(struct model_thread_ctx *w, int layer,
                                   const struct model_view *v));

#endif
