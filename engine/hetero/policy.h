/* hetero/policy.h - what a step of a model takes where its weights exceed the accelerator's memory:
 * policies that place and compute them, one file in hetero/policy/ each, which ends in one `const
 * struct hetero_policy hetero_policy_<stem>`.
 *
 * Attention's weights, few compared with the others, are computed on the accelerator; keys and
 * values, norms and the transfer of activations count nothing, as in the paper's model. An
 * expert gets an equal share of the tokens of a step.
 * Paper: ScheInfer V.   Threads: pure functions. */
#ifndef HETERO_POLICY_H
#define HETERO_POLICY_H

#include "hetero/memory.h"
#include "hetero/times.h"

struct hetero_model {
    const char *name;
    int n_layers;
    int n_experts, n_active;   /* of a layer, and of them for each token; dense: 1, 1 */
    int64_t dim, hidden;       /* of an expert or of the MLP, which has three products */
    int64_t shared_hidden;     /* of an expert that all tokens have; 0: none */
    int64_t attention_weights; /* of a layer */
    int64_t head_weights;
    enum hetero_type type; /* in the paper's measurements */
};
/* The models of the paper's section V. ERR_NOTFOUND names the nearest. */
extern const struct hetero_model *const hetero_models[]; /* ends in NULL */
MUST int hetero_model_find(const char *name, const struct hetero_model **out);

struct hetero_case {
    const struct hetero_machine *machine;
    const struct hetero_model *model;
    double bytes_per_weight;
    int64_t budget_bytes; /* of the accelerator's memory */
    int64_t n_tok;        /* of the step: 1 decodes, more are a prompt's */
    int n_units;          /* slices of a matrix, as in struct hetero_layer */
    bool as_printed;
    /* These serve ablations of the policy scheinfer. */
    double fixed_cg;   /* CG's share of what is not GG; below 0: the best */
    bool whole_layers; /* a layer's GG is nothing or all */
    bool no_takeover;  /* the CPU computes CC for all tokens of a prompt */
    bool no_gg;        /* only attention stays on the accelerator */
    bool exact;        /* GG by the exact assignment in place of the greedy one */
};

struct hetero_result {
    double step_s;
    /* Means over all layers, weighted by their weights; NaN where the policy has none. */
    double cg, gg, accel_tok_frac;
};

struct hetero_policy {
    const char *name, *help;
    /* ERR_NOMEM: the budget is too small for the policy. ERR_UNSUPPORTED: not for this model. */
    int (*step)(struct hetero_result *out, const struct hetero_case *c);
};
extern const struct hetero_policy *const hetero_policies[];
MUST int hetero_policy_find(const char *name, const struct hetero_policy **out);

/* ---- for policies ---- */

/* An MLP, or the experts of a layer, or a shared expert. */
struct hetero_part {
    struct hetero_layer
        layer;     /* of one expert, for the tokens that it gets in the step */
    int n;         /* in a layer of the model */
    double n_used; /* of these in the step, expected */
    int64_t bytes; /* of one */
};
#define HETERO_PARTS_MAX 2
/* Returns how many. n_tok: of the step. */
int hetero_parts(const struct hetero_case *c, int64_t n_tok,
                 struct hetero_part parts[HETERO_PARTS_MAX]);
/* Attention's weights and the head, all layers, computed on the accelerator for n_tok tokens (the
 * head for one). */
double hetero_attention_s(const struct hetero_case *c);
/* As llama.cpp computes a product whose weights are not on the accelerator: for a prompt of
 * HETERO_OFFLOAD_TOK tokens and more there, after their transfer, else on the CPU. */
#define HETERO_OFFLOAD_TOK 32
double hetero_elsewhere_s(const struct hetero_case *c, const struct hetero_gemm *g);
int64_t hetero_attention_bytes(const struct hetero_case *c);

/* Which units of each MLP and expert of a model stay on the accelerator. Zero before open. */
struct hetero_slicing {
    struct hetero_part parts[HETERO_PARTS_MAX];
    int n_parts, n_shares;
    /* By units of GG, [n_units + 1]: the time of one of a part's n, and the CG that goes with
     * it. */
    double *layer_s[HETERO_PARTS_MAX];
    int *cg_units[HETERO_PARTS_MAX];
    struct hetero_share *shares; /* [n_shares] layer by layer, the experts first */
    int *units, *kind;  /* [n_shares] to be assigned; the part that a share is of */
    int64_t left_bytes; /* without attention and the buffers of two products */
};
/* The time of a part with gg units of GG, and the CG that is taken with them. */
typedef double (*hetero_cg_fn)(const struct hetero_case *c, const struct hetero_part *p,
                               int gg, int *cg);
/* For steps of n_tok tokens. hetero_slicing_close() also after an error. ERR_NOMEM: also where
 * the budget does not hold attention and the buffers, for the policy of this name. */
MUST int hetero_slicing_open(struct hetero_slicing *out, const char *policy,
                             const struct hetero_case *c, int64_t n_tok, hetero_cg_fn cg);
void hetero_slicing_close(struct hetero_slicing *w);
/* Add the MLPs of a step of c with the assigned units to out->step_s, and set its shares. */
void hetero_slicing_sum(struct hetero_result *out, const struct hetero_slicing *w,
                        const struct hetero_case *c);
/* A part's time with these slices in c's step, and the tokens of CC that are taken over. */
double hetero_part_s(const struct hetero_case *c, const struct hetero_part *p,
                     int cg_units, int gg_units, int64_t *n_accel_tok);

#endif
