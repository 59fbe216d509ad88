/* format/config.h - the configuration of a Llama-family model. */
#ifndef FORMAT_CONFIG_H
#define FORMAT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/kern.h"

#define MODEL_MAX_LAYERS   256
#define MODEL_MAX_EXPERTS  512
#define MODEL_HEAD_DIM_MAX KERN_HEAD_DIM_MAX

/* Rows of down (columns of gate and up) in one unit: the finest tensor-parallel cut. Four
 * panels; a multiple of the bf16 pair; 5504 = 86 units splits over 8 ranks within 3 %.
 * Half as large would cost bf16 decode a tenth of its bandwidth in `down` (shorter runs
 * of bytes). Quantised weights are a half to an eighth of its bytes: measured on Zen 4, `down`
 * of 2048 x 5504 in q4_0 takes 1.25 (exact: 1.45) times as long with 64 rows, on two threads,
 * and q8_0 with a8 1.25 times with 128. A block of Q4_K has as many rows. */
#define MODEL_FFN_UNIT       64
#define MODEL_FFN_UNIT_QUANT 256

/* Published models have at most five. */
#define MODEL_STOP_MAX 16

/* The matrices that steps read together. */
enum model_matrices {
    MODEL_QKV,
    MODEL_O,
    MODEL_FFN, /* that every token has */
    MODEL_EXPERTS,
    MODEL_HEAD, /* the embedding where they are tied */
    MODEL_EMBED,
    MODEL_N_MATRICES
};

/* An MLP's hidden values are act(gate) * up. */
enum model_activation {
    MODEL_SILU,
    MODEL_GELU,       /* by tanh */
    MODEL_SWIGLU_OAI, /* (up + 1) gate sigmoid(1.702 gate), both clamped at 7; gpt-oss */
    MODEL_N_ACTIVATIONS
};

/* Without a gate (no_gate) they are act(up). */

/* Where the norms of a layer's two parts, attention and the MLP, are. */
enum model_norms {
    MODEL_NORM_BEFORE, /* of what goes in */
    MODEL_NORM_AFTER,  /* of what comes out, before it is added; OLMo 2 */
    MODEL_NORM_AROUND  /* both; GLM-4 */
};

/* What is different in some layers. */
#define MODEL_LAYER_NO_ROPE 1u /* queries and keys are not rotated; SmolLM3 */
#define MODEL_LAYER_WINDOW                                                               \
    2u /* a token attends to `window` tokens only, itself included */

struct model_config {
    char arch[32]; /* a row of format/family.c has it: "llama" (also Mistral, Mixtral) */
    char name[96]; /* the name in the file, or the stem of its path */
    int dim, n_layers, n_heads, n_kv_heads, head_dim, vocab;
    /* Latent attention (MLA): the key of a token is one vector of all heads, rope_dims elements
     * that are rotated and latent_dim that are also its value. head_dim is their sum, n_kv_heads
     * 1. A head's query has nope_dim elements, which a matrix of the head brings to latent_dim, and
     * rope_dims; another matrix brings what it attends to to value_dim. 0: none; DeepSeek V2.
     * Queries of low rank: they are made of q_rank normalised numbers of a token; 0: of all. */
    int latent_dim, nope_dim, value_dim, q_rank;
    int hidden; /* of the MLP that every token has; in a mixture of experts, of the shared
                   expert, whose output is scaled by the sigmoid of a product; 0: none */
    bool shared_plain; /* ... by nothing; DeepSeek */
    /* Experts of a layer, and how many of them a token has: those with the largest scores, of
     * equal ones those with lower numbers. A score is the softmax of the products with the
     * router's rows, or their sigmoid, which is the token's weight of the expert. 0: dense. */
    int n_experts, n_active;
    int expert_hidden;
    bool router_sigmoid; /* GLM-4.5 */
    /* A number of each expert is added to its score where experts are chosen, not in weights. */
    bool router_choice;
    /* A token's experts are of n_active_groups of n_groups equal parts of the experts: those with
     * the largest sum of their two largest scores (without router_choice: the largest score).
     * 0: of all. DeepSeek V3. */
    int n_groups, n_active_groups;
    bool norm_topk;     /* a token's weights are divided by their sum */
    float expert_scale; /* and multiplied by it; 0: they are not */
    /* The first n_dense layers have an MLP of dense_hidden in place of experts; GLM-4.5. */
    int n_dense, dense_hidden;
    int n_ahead; /* layers behind these in the file that predict a token more; not read */
    int max_tok; /* the longest context the model is made for */
    float norm_eps;
    float rope_theta;
    enum model_activation activation;
    bool tied;        /* the output head is the embedding matrix */
    bool qkv_bias;    /* Qwen2, and with o_bias where a file of another family has them */
    bool o_bias;      /* of attention's output */
    bool qk_norm;     /* RMSNorm of every query and key head before rotation; Qwen3 */
    bool qk_norm_row; /* with qk_norm: of all heads of a token together; OLMo 2 */
    enum model_norms norms;
    /* LayerNorm in place of RMSNorm, but of heads; with norm_bias a bias is added. */
    bool layer_norm;
    bool norm_bias;
    bool sinks;       /* a number of each head is one more score, of no value; gpt-oss */
    bool expert_bias; /* of the router, and of each expert's gate, up and down */
    bool no_gate;     /* the MLP, not of experts, has up and down alone; StarCoder 2 */
    bool mlp_bias;    /* of up and down; only with no_gate */
    bool parallel;    /* the MLP reads what attention reads, under one norm; Command-R */
    /* Factors of embedded tokens, of what attention and the MLP add, of scores (in place of
     * 1 / sqrt(head_dim)) and of logits; Granite. 0: none. */
    float embed_scale, residual_scale, attn_scale, logit_scale;
    /* Scores, and logits, x become softcap * tanh(x / softcap); Gemma 2. 0: they stay. */
    float attn_softcap, logit_softcap;
    uint8_t layer_flags[MODEL_MAX_LAYERS]; /* MODEL_LAYER_..., or-ed */
    int window;                            /* of the layers that have one; 0: none has */
    float rope_local_theta; /* rope_theta of those, unscaled; 0: as the others; Gemma 3 */
    /* Each rotary frequency is divided by rope_factor[i], i < head_dim/2 (1 = unscaled).
     * Llama-3 scaling is resolved into these by the reader. */
    float rope_factor[MODEL_HEAD_DIM_MAX / 2];
    /* In a model opened for more than rope_short_tok tokens by these instead. 0: never; Phi-3 */
    int rope_short_tok;
    float rope_long[MODEL_HEAD_DIM_MAX / 2];
    /* In a model opened for more than rope_short_tok the base of the rotation is larger, by dynamic
     * NTK scaling with this factor for the whole of its context. 0: it is rope_theta. */
    float rope_ntk;
    int rope_dims; /* the first elements of a head that are rotated; 0: all */
    /* Rotated elements are multiplied by it, but those that rope_local_theta is for; 0: they are
     * not. */
    float rope_length;
    enum kern_type weight_type; /* of the matrices as stored: of most of their weights */
    /* Where matrices have different types: the bytes of a packed weight (of the embedding: as
     * stored), a mean over the layers.
     * All 0: every matrix is of weight_type. */
    double mean_bytes[MODEL_N_MATRICES];
    /* Weights along K that cannot be divided in attention output and down: the longest block
     * of their types, or all of a KV group's heads (KERN_W4C). 1: none. 0: no tensors were
     * seen, see model_k_block(). */
    int k_block;
    /* V has another quantised type than Q and K in some layer: it is a matrix of its own. Or K has
     * another than Q, too: then both are a matrix of their own. */
    bool v_split, k_split; /* k_split only with v_split */
    int bos_id, eos_id;    /* -1: none */
    /* The tokens that end a text, eos_id first: [n_stop]. */
    int n_stop, stop_ids[MODEL_STOP_MAX];
};

/* The same without tensors: as if all matrices were of weight_type. */
static inline int model_k_block(const struct model_config *c)
{
    return c->k_block > 0 ? c->k_block : kern_type_block(c->weight_type);
}

/* The operator that computes act(gate) * up. */
static inline enum kern_op model_gate_op(const struct model_config *c)
{
    static const enum kern_op ops[MODEL_N_ACTIVATIONS] = {[MODEL_SILU] = KERN_SILU_MUL,
                                                          [MODEL_GELU] = KERN_GELU_MUL,
                                                          [MODEL_SWIGLU_OAI] =
                                                              KERN_SWIGLU_OAI};

    return ops[c->activation];
}

/* Do outputs of attention and the MLP have a buffer of their own before the residual stream? */
static inline bool model_sums_apart(const struct model_config *c)
{
    return c->norms != MODEL_NORM_BEFORE || c->parallel;
}

/* Matrices whose columns make the MLP's hidden values: gate and up, or up. */
static inline int model_mlp_inputs(const struct model_config *c)
{
    return c->no_gate ? 1 : 2;
}

static inline int model_rope_dims(const struct model_config *c)
{
    return c->rope_dims > 0 ? c->rope_dims : c->head_dim;
}

/* Elements of a head where queries are projected, and where the output is. */
static inline int model_q_dim(const struct model_config *c)
{
    return c->latent_dim > 0 ? c->nope_dim + c->rope_dims : c->head_dim;
}
static inline int model_o_dim(const struct model_config *c)
{
    return c->latent_dim > 0 ? c->value_dim : c->head_dim;
}

/* Rows of the router: one for each expert, and one for the scale of a shared expert. */
static inline int model_router_rows(const struct model_config *c)
{
    return c->n_experts > 0 ? c->n_experts + (c->hidden > 0 && !c->shared_plain) : 0;
}

/* Has a layer experts? Otherwise it has an MLP of model_mlp_hidden(). */
static inline bool model_has_experts(const struct model_config *c, int layer)
{
    return c->n_experts > 0 && layer >= c->n_dense;
}
static inline int model_mlp_hidden(const struct model_config *c)
{
    return c->n_experts > 0 ? c->dense_hidden : c->hidden;
}

/* Rows in a unit of down: whole blocks. */
static inline int model_ffn_unit(const struct model_config *c)
{
    int unit =
        kern_type_quantised(c->weight_type) ? MODEL_FFN_UNIT_QUANT : MODEL_FFN_UNIT;
    int block = model_k_block(c);

    return (unit + block - 1) / block * block;
}

/* Check that the numbers are consistent (heads divide, head_dim even and <= 256,
 * sizes positive and below documented limits). ERR_FORMAT and ERR_LIMIT name the
 * number; `where` begins the message. */
MUST int model_config_check(const struct model_config *c, const char *where);

/* Set what follows from latent_dim, nope_dim, value_dim and rope_dims: head_dim, n_kv_heads and,
 * for rotary elements that were stretched by YaRN with this factor and mscale_all_dim (0: they
 * were not), attn_scale. */
void model_config_latent(struct model_config *c, double yarn_factor, double mscale);

/* Fill rope_factor by Llama-3 frequency scaling from its four numbers. */
void model_config_rope_llama3(struct model_config *c, double factor,
                              double low_freq_factor, double high_freq_factor,
                              double original_max_tok);

/* Fill rope_factor by YaRN: pairs that turn more than beta_fast times within the original context
 * stay, those that turn fewer than beta_slow times are divided by `factor`, and between the two the
 * share falls with the number of the pair. `whole`: these numbers are rounded, outwards. */
void model_config_rope_yarn(struct model_config *c, double factor, double beta_fast,
                            double beta_slow, double original_max_tok, bool whole);
/* What YaRN multiplies rotated elements by: 1 + 0.1 mscale ln(factor). */
double model_config_yarn_length(double factor, double mscale);
/* The base of the rotation in a model that is opened for max_tok tokens. */
double model_config_rope_theta(const struct model_config *c, int64_t max_tok);

/* Every n-th layer, the n-th the first of them, has these flags; n = 0: none. */
void model_config_flag(struct model_config *c, unsigned flags, int n);

/* Add a token that ends a text; one outside the vocabulary, or known already, changes
 * nothing. ERR_LIMIT: there are more than MODEL_STOP_MAX. */
MUST int model_config_stop(struct model_config *c, int64_t id, const char *where);
/* Layers have a window, but each `every`-th, the first of them number `every` (0: all have), unless
 * `flagged`: then they are marked. A window of max_tok or more is none. */
void model_config_window(struct model_config *c, int window, int every, bool flagged);

/* Of norms and biases in a layer. */
int64_t model_config_n_vector_params(const struct model_config *c, int layer);
/* Parameters in all matrices and vectors. What a step costs is in model/cost.h. */
int64_t model_n_params(const struct model_config *c);

#endif
