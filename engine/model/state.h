/* model/state.h - the inside of an opened model, for the modules that make it one: placement packs
 * and opens it, step computes with it, ranks prepares phases of it. */
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include "kernels/gemm.h"
#include "kernels/quant.h"
#include "model/choose.h"
#include "model/model.h"

/* The buffers that one thread owns while a step runs. Each buffer begins on its own
 * page. */
struct model_scratch {
    float *stage; /* [rows of a block, ld_stage], normalised or gathered, to be packed */
    void *a;      /* a block of packed activations that only this thread reads */
    void *gemm;   /* KERN_GEMM_SCRATCH_BYTES */
    void *attn;   /* KERN_ATTN_SCRATCH_BYTES */
    float *tail;  /* [max_step_tok, 16]: the head's last panel, not all columns used */
    /* For a mixture of experts, in a step of n rows with k experts each: pair r k + j is row r with
     * its j-th expert. */
    float *normed;   /* [ld_x] a single row, normalised */
    int32_t *expert; /* [n k] of each pair */
    float *weight;   /* [n k] of each pair */
    int64_t *row;    /* [n k] of the pairs in the order of their experts */
    int32_t *at;     /* [n k] where each pair is in that order */
    int32_t *first;  /* [n_experts + 1] where each expert's pairs begin in it */
};

/* Where a deterministic model cuts the rows of a matrix that is split along K. Each
 * supported number of ranks divides the rows at some boundaries, and `at` is the union of
 * these. Rows [at[i], at[i + 1]) are one part of every sum, and parts are added in
 * ascending order of i. */
#define MODEL_BOUNDARIES_MAX 32
struct model_reduction_boundaries {
    int n; /* parts */
    int64_t at[MODEL_BOUNDARIES_MAX + 1];
};

struct model {
    struct model_config c;
    struct kern_table kern;
    struct model_variants variants; /* all 0 where none were timed */
    /* By ranges of rows, the last also in kern.v; NULL: kern.v has it. */
    const struct kern_variant *by_rows[KERN_N_TYPES][MODEL_RANGES];
    struct par_team *team; /* lent; with procs: the team of this process */
    int n_threads; /* of the team that opened it; sizes `scratch` and thread slots */
    bool deterministic, shared, one_rank;
    struct model_procs *procs; /* the ranks as processes, including this one; or NULL */
    /* Set in a deterministic model only. */
    struct model_reduction_boundaries attn_boundaries, mlp_boundaries[MODEL_N_MLPS];
    struct model_load_stat load;
    enum kern_kv_type kv_type;

    /* Weights, all in one mapping. */
    void *weights;
    size_t weights_bytes;
    struct model_placement *placement;
    struct model_layer *layers;
    struct kern_mat *mats;           /* of all layers */
    float *out_norm, *out_norm_bias; /* the bias: NULL, or [dim] */
    struct kern_mat head;            /* also the embedding when c.tied */
    struct kern_mat head_tail; /* the last panel alone; n < 16 where it is not full */
    void *embed;               /* [vocab, dim] of embed_type; NULL when c.tied */
    enum kern_type embed_type;
    size_t embed_row_bytes;

    /* Shapes derived from c. */
    int group;        /* query heads per KV head */
    int64_t qkv_unit; /* columns of one KV group in the packed QKV, a multiple of 16 */
    int64_t v_unit;   /* columns of a KV group in the packed V; 0 unless c.v_split */
    float attn_scale; /* of scores */
    int64_t ld_x;     /* floats from a row of x to the next */
    int64_t k_max;    /* the longest row of activations */

    /* Buffers, all in one mapping `act`. */
    int64_t max_step_tok, max_tok;
    void *act;
    size_t act_bytes;
    float *rope_cos,
        *rope_sin; /* [max_tok, model_rope_dims() / 2]; with rope_local_theta, behind
                                   them the same for layers with a window */
    int64_t *rows; /* [max_step_tok] rows of the step whose logits are wanted */
    struct model_scratch *scratch; /* [threads of the team] */

    uint64_t times_ns[MODEL_T_N]; /* written by thread 0 */
};

/* The matrix of this kind in the first layer, or the head. */
const struct kern_mat *model_mat(const struct model *m, enum model_mat which);
static inline int64_t model_pad16(int64_t n)
{
    return (n + KERN_PANEL - 1) / KERN_PANEL * KERN_PANEL;
}

/* Columns of a KV group where attention reads queries, key and value, and in the packed V. Of
 * latent attention the packed matrix has the queries alone, with heads of model_q_dim(). */
static inline int64_t model_qkv_unit(const struct model_config *c)
{
    return model_pad16(
        (int64_t)(c->n_heads / c->n_kv_heads + 2 - c->v_split - c->k_split) *
        c->head_dim);
}
static inline int64_t model_v_unit(const struct model_config *c)
{
    return c->v_split || c->latent_dim > 0
               ? model_pad16((int64_t)(1 + c->k_split) * c->head_dim)
               : 0;
}

/* The sizes of units and groups, which the configuration alone determines. */
static inline struct model model_of_config(const struct model_config *c)
{
    return (struct model){.c = *c,
                          .group = c->n_heads / c->n_kv_heads,
                          .qkv_unit = model_qkv_unit(c),
                          .v_unit = model_v_unit(c)};
}

/* The packed QKV column where query head q begins. */
static inline int64_t model_q_column(const struct model *m, int q)
{
    return q / m->group * m->qkv_unit + (int64_t)(q % m->group) * m->c.head_dim;
}

static inline const struct kern_variant *
model_gemm(const struct model *m, const struct kern_mat *w, int64_t rows)
{
    for (int i = 0; i < MODEL_RANGES - 1; i++)
        if (rows < model_range_end[i] && m->by_rows[w->type][i])
            return m->by_rows[w->type][i];
    return m->kern.v[KERN_GEMM_F32 + w->type];
}

/* Where `precision` allows several GEMM variants of which none is always the fastest: time those of
 * the first layer's type and keep the fastest, and those of the same names for other types. */
MUST int model_choose_gemm(struct model *m, enum kern_precision precision);
/* Where scores are capped, replace attention by plain C, which alone does that. */
void model_cap_attn(struct model *m);
/* Unless bf16_dot is fast (cpu_bf16_dot_fast()), replace attention by the BF16 dot product by the
 * exact one. */
void model_choose_attn(struct model *m, bool bf16_dot);

#endif
