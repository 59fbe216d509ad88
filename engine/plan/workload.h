/* plan/workload.h - the work of a model's steps over a trace, from its configuration alone.
 *   Paper: Sandwich 5.3.   Threads: any. */
#ifndef PLAN_WORKLOAD_H
#define PLAN_WORKLOAD_H

#include "model/cost.h"
#include "plan/trace.h"
#include "topo/service_config.h"

/* Prefill: a step for each of the trace's prompts, whole. Decode: a step of `batch` sequences
 * for each of its contexts. ERR_ARG: the batch is below 1. */
MUST int plan_workload(struct simulate_workload *out, const struct model_config *c,
                       struct model_cost_types types, enum topo_phase phase,
                       const struct plan_trace *t, int batch);

/* One step: a piece of n_tok tokens of a prompt, after ctx_tok others. */
void plan_piece_workload(struct simulate_workload *out, const struct model_config *c,
                         struct model_cost_types types, int64_t n_tok, int64_t ctx_tok);

/* The limits that the operators set: heads, KV heads, feed-forward units and blocks of quantised
 * weights. *c is lent to *out. */
void plan_limits(struct topo_limits *out, const struct model_config *c, bool strict);

#endif
