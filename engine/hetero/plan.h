/* hetero/plan.h - which slices of a model's MLPs or experts are where, and what its steps then
 * take, by a profile and a model file's configuration: before anything is loaded.
 *
 * Attention, its matrices and the head stay on the CPU. A step takes, after each other: for each
 * layer the products of attention, its keys and values, and the MLP on both, with activations
 * there and back; then the head. Norms and barriers are in the starts of the products.
 * All experts of a layer have the same slices. A step is taken to have as many of them as tokens
 * that choose at random have together (model_cost_experts()), each with its mean number of tokens.
 * A shared expert's bytes are read by every token, so that memory is its before it is theirs.
 * Paper: ScheInfer IV.   Threads: pure functions. */
#ifndef HETERO_PLAN_H
#define HETERO_PLAN_H

#include <jansson.h>

#include "format/config.h"
#include "hetero/layer.h"
#include "hetero/profile.h"
#include "kernels/kv_type.h"

struct hetero_plan_opts {
    const struct hetero_profile *profile;
    const struct model_config *config;
    enum kern_kv_type kv;
    int n_threads;
    int64_t budget_bytes; /* of the accelerator's memory */
    int64_t n_prompt, n_new, max_step_tok;
    double fixed_cg; /* CG's share of what is not GG; below 0: the best */
    double
        fixed_gg; /* GG's share of each layer, in whole units; below 0: by the budget */
};

/* A step, predicted. */
struct hetero_step {
    double step_s, mlp_s, attention_s, head_s; /* the last three add up to the first */
    double accel_s, cpu_s;                     /* of the MLPs, each side's */
    int64_t n_accel_tok;
};

struct hetero_plan {
    int n_layers, n_units; /* units of hidden / n_units rows, of which slices are made */
    struct hetero_units units[MODEL_MAX_LAYERS];
    int n_shared_units; /* the same of a shared expert; 0: there is none */
    struct hetero_units shared[MODEL_MAX_LAYERS];
    struct hetero_machine machines[2]; /* for one token, for many */
    double used_bytes, reserved_bytes;
    struct hetero_step decode, prompt;
    double tokens_per_s, lo,
        hi; /* decode, with its 95 % interval; the prompt's with the same */
    double prompt_s;
    double cpu_only_tokens_per_s;
    double rounding_loss_frac; /* of decode, to slices of 1/4096 of a matrix */
    double greedy_loss_frac;   /* of its MLPs, to the exact assignment of memory */
};
/* ERR_NOTFOUND: the profile has no products of this type and these threads. ERR_NOMEM: the budget
 * does not hold the buffers. ERR_UNSUPPORTED: some layers have experts and some have none. */
MUST int hetero_plan_make(struct hetero_plan *out, const struct hetero_plan_opts *o);
/* For struct hetero_offload_opts: out [n_layers hetero_n_mlps()]. */
void hetero_plan_units(struct hetero_units *out, const struct hetero_plan *p,
                       const struct model_config *c);
MUST int hetero_plan_json(const struct hetero_plan *p, const struct hetero_plan_opts *o,
                          json_t **out);
/* Why it is so, for people; mem_free(). */
MUST int hetero_plan_text(const struct hetero_plan *p, const struct hetero_plan_opts *o,
                          char **out);

#endif
