/* step/offload.h - lets something other than the CPU compute a part of each layer's MLP: some
 * hidden units of all rows, and all hidden units of the last rows. What it computes is added to
 * the residual stream after what the CPU computes, so that sums have another order than without
 * it. In a mixture of experts the same holds for each expert and the rows that it has.
 * Paper: ScheInfer III.   Threads: see below. */
#ifndef STEP_OFFLOAD_H
#define STEP_OFFLOAD_H

#include "model/shard.h"

struct model_thread_ctx;

/* The rows of a mixture of experts. Group e < n_experts has those of expert e, which are pairs
 * [first[e], first[e + 1]) of a row and an expert: pair i is of row row[i]. The last group is the
 * shared expert's, where there is one: all n_rows rows, whose pairs follow the others. */
struct model_expert_rows {
    const float *x; /* [n_rows, ld_x of the model] normalised; lent */
    int64_t n_rows;
    const int32_t *first; /* [n_experts + 1] */
    const int64_t *row;   /* [pairs of experts] */
};

struct model_offload {
    void *ctx;
    float *x; /* [max_step_tok, ld_x of the model] where rows are normalised; lent */
    const struct model_view *
        views; /* [n_layers] what the CPU computes: gate_up and down; lent. In a mixture of
                   experts those of all experts, and the router */
    /* One thread of the phase calls both, in each layer. begin: rows of x are ready and stay as
     * they are; returns how many of them, the first ones, the CPU computes with its view. end:
     * add the rest to y[n_rows, ld_x]; an error ends the step. */
    int64_t (*begin)(void *ctx, int layer, int64_t n_rows);
    int (*end)(void *ctx, int layer, float *y);

    /* The same of a mixture of experts. begin_experts: sets `groups`. end_experts: *y
     * [pairs, ld_x], lent until the next begin; its rows are not weighted, and only those that
     * `groups` names are set. */
    void (*begin_experts)(void *ctx, int layer, const struct model_expert_rows *rows);
    int (*end_experts)(void *ctx, int layer, const float **y);
    /* [n_experts + 1] of a group's rows the CPU computes the first n_cpu, with its view; those from
     * `from` on have a part in *y. */
    struct model_offload_group {
        int64_t n_cpu, from;
    } * groups;
};

/* The MLP of a layer by phase->offload and, for its view and rows, by `cpu`, which all threads of
 * the phase call. */
void model_offload_ffn(struct model_thread_ctx *w, int layer,
                       void (*cpu)(struct model_thread_ctx *w, int layer,
                                   const struct model_view *v));

#endif
