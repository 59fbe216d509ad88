/* plan/workload.h - the work of a model's steps over a trace, from its configuration alone.
 *   Paper: Sandwich 5.3.   Threads: any. */
#ifndef PLAN_WORKLOAD_H
#define PLAN_WORKLOAD_H

#include "model/cost.h"
#include "topo/service_config.h"
#include "simulate/workload.h"

/* The lengths of requests, tokens. */
struct plan_lengths {
    const int64_t *n_prompt, *n_output; /* [n] */
    int64_t n;
};

/* Means: of the prompts, and of the tokens that an output token attends to (token i of a
 * request to its prompt and i tokens), at least one request given. */
double plan_mean_prompt(const struct plan_lengths *l);
double plan_mean_context(const struct plan_lengths *l);

/* Prefill: steps of a whole prompt each, at SIMULATE_STEPS_MAX quantiles of the prompts'
 * lengths. Decode: one step of `batch` sequences at the mean context of all output
 * tokens, which is exact, for its time is linear in the context. `type`: of the weights in
 * memory. ERR_ARG: no lengths, or one below 1. */
MUST int plan_workload(struct simulate_workload *out, const struct model_config *c,
                       enum kern_type type, enum topo_phase phase,
                       const struct plan_lengths *l, int batch);

/* One step: a piece of n_tok tokens of a prompt, after ctx_tok others. */
void plan_piece_workload(struct simulate_workload *out, const struct model_config *c,
                         enum kern_type type, int64_t n_tok, int64_t ctx_tok);

/* What the operators allow: heads, KV heads and feed-forward units. */
void plan_limits(struct topo_limits *out, const struct model_config *c, bool strict);

#endif
