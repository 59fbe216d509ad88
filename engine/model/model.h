/* model/model.h - an opened model: packed weights and the forward step.
 *
 * Weights are packed once, in parallel, by the team that will read them, into units and
 * panels (kernels/pack.h) shared by prefill and decode:
 *   QKV      split along N; unit = one KV group: its g query heads, then its K, then its V
 *            head, each unit padded to whole panels. Where files give V another quantised
 *            type (K-quants of mixed types do), V is a matrix of its own, whose unit is a V
 *            head: one more product of few columns in each layer. Where K has another type
 *            than Q as well (mixtures of 8 experts), its head precedes V's there
 *   output   split along K; unit = the g * head_dim rows of one KV group
 *   gate+up  split along N; panels alternate gate, up; unit = model_ffn_unit() columns. Of an
 *            MLP without a gate: up alone
 *   down     split along K; unit = model_ffn_unit() rows
 *   experts  each as gate+up and down; in a mixture of experts these two are the shared expert
 *   router   not split: every rank computes all of it
 *   head     split along N in vocabulary panels (also serves as a tied embedding)
 * Output and down are not split where all phases have one rank (model_opts.one_rank). In a split
 * matrix threads take turns, and hardware prefetching goes on beyond the end of a turn, into what
 * another thread reads. Measured on Zen 4, llama-160m in bf16, two threads, turns of 48 kB: whole,
 * all products of a step take 0.88 to 0.91 of the time with 4 and 8 sequences where each thread
 * has its own third-level cache; where they share it, 0.96 to 1.02 with 1 to 16.
 * Rank r of R owns units [r S / R, (r+1) S / R).   Paper: Sandwich 5.3.
 * Threads: one thread owns a model (the one that opened its team). */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/kv.h"
#include "format/format.h"
#include "model/cost.h"
#include "par/team.h"
#include "kernels/schedule.h"

/* The kinds of matrices of a model. A kind has the same shape in all layers. */
enum model_mat {
    MODEL_MAT_QKV,
    /* With K where config.k_split; of latent attention its one key; else it has no columns unless
     * config.v_split. */
    MODEL_MAT_V,
    MODEL_MAT_Q_A, /* dim to config.q_rank, which is then the K of QKV; or without columns */
    /* Of latent attention, with columns of one head behind another: nope_dim of a query to
     * latent_dim, and latent_dim to value_dim. */
    MODEL_MAT_LATENT_K,
    MODEL_MAT_LATENT_V,
    MODEL_MAT_O,
    MODEL_MAT_ROUTER, /* a column for each expert, and one for a shared expert; f32 */
    /* of the MLP that every token has; without columns where there is none */
    MODEL_MAT_GATE_UP,
    MODEL_MAT_DOWN,
    /* in place of it, in a layer without experts of a model that has some */
    MODEL_MAT_DENSE_GATE_UP,
    MODEL_MAT_DENSE_DOWN,
    /* of each expert of a layer */
    MODEL_MAT_EXPERT_GATE_UP,
    MODEL_MAT_EXPERT_DOWN,
    MODEL_MAT_HEAD, /* the kinds before it are those of layers */
    MODEL_N_MATS
};

struct model_layer {
    float *attn_norm, *ffn_norm; /* [dim]; NULL: what goes in is not normalised */
    float *attn_norm_bias, *ffn_norm_bias; /* NULL, or [dim] */
    float *attn_after, *ffn_after; /* NULL, or [dim]: norms of what the parts give */
    /* [head_dim] of every head, or of all heads in the packed order of each (qk_norm_row); NULL
     * without qk_norm */
    float *q_norm, *k_norm;
    struct kern_mat *mats;     /* [model_n_layer_mats()] */
    float *qkv_bias, *v_bias;  /* NULL, or one float per packed column */
    float *o_bias, *down_bias; /* NULL, or [dim] */
    float *up_bias;            /* NULL, or one float per packed column */
    float *sinks;              /* NULL, or [n_heads] */
    /* NULL, or one float per packed column of the router; of each expert's (gate, up); [n_experts,
     * dim] */
    float *router_bias, *expert_bias, *expert_down_bias;
    float *router_choice; /* NULL, or [n_experts] */
    float *latent_norm;   /* NULL, or [latent_dim] */
    float *q_a_norm;      /* NULL, or [q_rank] */
};

/* The matrices of a layer, those without columns included: one of each kind, by its number, but
 * of experts two for each expert, (gate, up) and down (of a dense model two without columns). */
static inline int model_n_layer_mats(const struct model_config *c)
{
    return MODEL_MAT_EXPERT_GATE_UP + 2 * (c->n_experts > 0 ? c->n_experts : 1);
}
/* The kind of the i-th of them. */
static inline enum model_mat model_layer_mat_kind(int i)
{
    return i < MODEL_MAT_EXPERT_GATE_UP         ? (enum model_mat)i
           : (i - MODEL_MAT_EXPERT_GATE_UP) % 2 ? MODEL_MAT_EXPERT_DOWN
                                                : MODEL_MAT_EXPERT_GATE_UP;
}
/* The MLPs of a model by their (gate, up), which down follows. */
enum model_mlp {
    MODEL_MLP_ALL,   /* MODEL_MAT_GATE_UP */
    MODEL_MLP_DENSE, /* MODEL_MAT_DENSE_GATE_UP */
    MODEL_MLP_EXPERT,
    MODEL_N_MLPS
};
static inline enum model_mlp model_mlp_of(enum model_mat kind)
{
    return (enum model_mlp)((kind - MODEL_MAT_GATE_UP) / 2);
}
/* That of a layer without experts. */
static inline enum model_mlp model_layer_mlp(const struct model_config *c)
{
    return c->n_experts > 0 ? MODEL_MLP_DENSE : MODEL_MLP_ALL;
}
/* A layer that has matrices of a kind, if one has. */
static inline int model_layer_with(const struct model_config *c, enum model_mat kind)
{
    return kind == MODEL_MAT_DENSE_GATE_UP || kind == MODEL_MAT_DENSE_DOWN ? 0
                                                                           : c->n_dense;
}
/* Which of them (gate, up) of an expert is; down follows. */
static inline int model_expert_mat(int expert)
{
    return MODEL_MAT_EXPERT_GATE_UP + 2 * expert;
}
/* The shapes they are packed in, padding included (see kern_mat_layout()). */
struct model_shape {
    const char *name; /* "qkv", "v", "o", "gate_up", "expert_down", ... */
    int64_t n, k, k_unit;
};
void model_shapes(const struct model_config *c, struct model_shape out[MODEL_N_MATS]);
/* Make of them those of a model that has one_rank. */
void model_shapes_join(struct model_shape shapes[MODEL_N_MATS]);
/* The parts of those that rank `rank` of n_ranks computes, without an opened model. n or k
 * is 0 where it has no part. The head is computed whole, by all ranks together. */
void model_rank_shapes(const struct model_config *c, int rank, int n_ranks,
                       struct model_shape out[MODEL_N_MATS]);

struct model;

/* Times and bytes of loading a model. They are part of every record. */
struct model_load_stat {
    int64_t tensor_bytes; /* of the file's tensors, in the kept type */
    int64_t packed_bytes; /* of all packed weights */
    int64_t file_bytes;
    double load_s, load_gbps; /* tensor bytes over wall time */
    /* Parts of load_s: for how long a thread read or waited for the file, and packed; means over
     * the threads that pack. What is left are page faults of the system and threads that wait for
     * one another. */
    double read_s, pack_s;
    int64_t disk_bytes;     /* that this process had read from disks meanwhile */
    double choose_s;        /* measuring kernels, which is not part of load_s */
    int64_t rss_peak_bytes; /* of the process, while loading */
};

const struct model_config *model_config_of(const struct model *m);
const struct kern_table *model_kern(const struct model *m);
/* The type the matrices of the layers are kept in (of the first layer's QKV, where a file
 * mixes types). */
enum kern_type model_weight_type(const struct model *m);
/* The types of weights and of keys and values, for model/cost.h. */
struct model_cost_types model_cost_types_of(const struct model *m);
const struct model_load_stat *model_load_stat_of(const struct model *m);
/* How a GEMM variant was chosen by measurement; "" if it was not. */
const char *model_kern_note(const struct model *m);
/* The mapping that holds all packed weights, to query its pages. */
void model_weights_region(const struct model *m, const void **p, size_t *bytes);
/* The mapping of the threads' own memory; model_phase_region() gives that of ranks. */
void model_act_region(const struct model *m, const void **p, size_t *bytes);
/* The model's shape as a pool for keys and values of this type takes it. */
void model_kv_shape_of(const struct model_config *c, enum kern_kv_type t,
                       struct kv_shape *out);
void model_kv_shape(const struct model *m, struct kv_shape *out);

/* ---- for studies of what a way to compute is worth ---- */

/* Multiply with `v`, which need not be in kern_variants, in place of the variant that was chosen
 * for its operator. Phases that are open keep their schedules: `v` has the rows and the format of
 * activations of the variant that it replaces, or they are opened later. */
void model_variant_set(struct model *m, const struct kern_variant *v);
/* Call fn for every packed matrix of the layers and the head, whose bytes it may change: for a
 * variant that reads them in another order. A tied embedding is read from the head. */
void model_mats_each(struct model *m, void (*fn)(void *ctx, const struct kern_mat *w),
                     void *ctx);
/* The time that thread 0 spent in each class of operators since the last call (ns). */
enum model_op_class {
    MODEL_T_LINEAR,
    MODEL_T_ATTN,
    MODEL_T_NORM_ROPE,
    MODEL_T_HEAD,
    MODEL_T_REDUCE, /* the sum over ranks, waiting for them included */
    MODEL_T_WAIT,
    MODEL_T_N
};
void model_times_take(struct model *m, uint64_t ns[MODEL_T_N]);

#endif
