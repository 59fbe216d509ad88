/* model/model.h - an opened model: packed weights and the forward step.
 *
 * Weights are packed once, in parallel, by the team that will read them, into units and
 * panels (kernels/pack.h) shared by prefill and decode:
 *   QKV      split along N; unit = one KV group: its g query heads, then its K, then its V
 *            head, each unit padded to whole panels. Where files give V another quantised
 *            type (K-quants of mixed types do), V is a matrix of its own, whose unit is a V
 *            head: one more product of few columns in each layer
 *   output   split along K; unit = the g * head_dim rows of one KV group
 *   gate+up  split along N; panels alternate gate, up; unit = model_ffn_unit() columns
 *   down     split along K; unit = model_ffn_unit() rows
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
#include "par/coll.h"
#include "par/team.h"
#include "kernels/schedule.h"

struct model_layer {
    float *attn_norm, *ffn_norm; /* [dim] */
    float *q_norm, *k_norm;      /* [head_dim] of every head; NULL without qk_norm */
    struct kern_mat qkv, v, o, gate_up, down; /* v: empty unless config.v_split */
    float *qkv_bias, *v_bias;                 /* NULL, or one float per packed column */
};

/* The kinds of matrices of a model. A kind has the same shape in all layers. */
enum model_mat {
    MODEL_MAT_QKV,
    MODEL_MAT_O,
    MODEL_MAT_GATE_UP,
    MODEL_MAT_DOWN,
    MODEL_MAT_HEAD,
    MODEL_MAT_V, /* of a layer; it has no columns unless config.v_split */
    MODEL_N_MATS
};
/* The shapes they are packed in, padding included (see kern_mat_layout()). */
struct model_shape {
    const char *name; /* "qkv", "o", "gate_up", "down", "head", "v" */
    int64_t n, k, k_unit;
};
void model_shapes(const struct model_config *c, struct model_shape out[MODEL_N_MATS]);
/* Make of them those of a model that has one_rank. */
void model_shapes_join(struct model_shape shapes[MODEL_N_MATS]);
/* Of those, the parts that rank `rank` of n_ranks computes, without an opened model. n or k
 * is 0 where it has no part. The head is computed whole, by all ranks together. */
void model_rank_shapes(const struct model_config *c, int rank, int n_ranks,
                       struct model_shape out[MODEL_N_MATS]);

/* The threads that own the packed weights: those that decode, since they read all weights
 * for every token. Ranks and threads as in struct model_phase_opts. n_ranks 0: one rank of
 * the whole team. */
struct model_numa_owners {
    int n_ranks, n_threads;
    const int *threads;
    /* [threads of the team] the system's number of each thread's memory node, -1 where it
     * is unknown. NULL: all unknown. */
    const int *nodes;
};

struct model_opts {
    enum kern_type weight_type; /* the type to keep weights in; KERN_N_TYPES: as stored */
    enum kern_kv_type kv_type;
    enum kern_precision precision;
    /* Give a sequence the same bits for any batch, division of its prompt, threads, ranks
     * of each phase (1, 2, 3, 4, 6 or 8, no more than query heads) and changes of phase.
     * Needs KERN_EXACT. It is slower: kernels are batch-invariant, and sums over ranks add
     * the same parts in the same order for any number of ranks. */
    bool deterministic;
    /* All phases will have one rank, so that matrices need not be split along K and each thread
     * reads its part of one in a single run. Has no effect on a deterministic model. */
    bool one_rank;
    /* Ranks will be processes, so activations are placed in memory that fork() shares. Keys
     * and values must be, too (struct kv_pool_opts). See model/procs.h. */
    bool shared;
    int64_t max_step_tok; /* most tokens in one forward step */
    int64_t max_tok;      /* longest sequence (rotary tables); 0: the file's */
    /* What the caller will take for the model's steps in addition: keys and values, logits.
     * The model is not opened where all of it together does not fit in memory. */
    int64_t caller_bytes;
    struct model_numa_owners owners;
    void (*progress)(void *ctx, int64_t done_bytes, int64_t all_bytes); /* may be NULL */
    void *progress_ctx;
};

struct model;

/* What loading did. It is part of every record. */
struct model_load_stat {
    int64_t tensor_bytes; /* of the file's tensors, in the kept type */
    int64_t packed_bytes; /* of all packed weights */
    int64_t file_bytes;
    double load_s, load_gbps; /* tensor bytes over wall time */
    int64_t rss_peak_bytes;   /* of the process, while loading */
};

/* Pack `f`'s weights with the team's threads, in pages on the memory node of their owners.
 * The file is not needed afterwards. ERR_ARG: the team does not have these owners.
 * ERR_UNSUPPORTED: weight_type would lose precision. ERR_NOMEM: it does not fit in the memory
 * that this process may take (cpu_memory_get()), or there is none. */
MUST int model_open(struct model **out, const struct format_file *f,
                    struct par_team *team, const struct model_opts *o);
void model_close(struct model **m);

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
/* On which memory nodes the packed weights are, compared with the nodes of their owners.
 * The bytes of a row are the sum of its first four members. */
enum model_weight_kind { /* a matrix by its enum model_mat, or one of: */
                         MODEL_WEIGHT_EMBED = MODEL_N_MATS,
                         MODEL_WEIGHT_NORMS, /* and biases */
                         MODEL_N_WEIGHT_KINDS
};
struct model_numa_row {
    const char *name;        /* "qkv", ..., "embedding", "norms" */
    int64_t local_bytes;     /* in pages on the owner's node */
    int64_t elsewhere_bytes; /* on another */
    int64_t absent_bytes;    /* not in memory */
    int64_t shared_bytes;    /* read from all nodes, or from an unknown one */
    /* Of local and elsewhere bytes: those in large pages that owners on several nodes
     * share, and the part of these on another node than the owner's, which is
     * unavoidable. */
    int64_t mixed_bytes, mixed_elsewhere_bytes;
};
struct model_numa_report {
    struct model_numa_row rows[MODEL_N_WEIGHT_KINDS];
    int n_nodes;         /* nodes that owners are on */
    int64_t bound_bytes; /* in pages that were bound to a node */
    const char *how;     /* how pages got their nodes, in words; lent */
};
/* Queries the node of every page, which takes a second for about 20 GB of small pages.
 * ERR_UNSUPPORTED: the kernel does not report it; all bytes then count as shared. */
MUST int model_numa_report_get(const struct model *m, struct model_numa_report *out);
/* Bind the pool's pages to the memory nodes of the owners that read their heads. Call it
 * with an empty pool, before its pages are touched. A kernel that refuses gives a warning.
 * ERR_STATE: the pool is in use. ERR_NOMEM. */
MUST int model_kv_bind(const struct model *m, struct kv_pool *pool);
/* On which nodes they are, as in a row of model_numa_report_get(). */
MUST int model_kv_numa_row(const struct model *m, struct kv_pool *pool,
                           struct model_numa_row *out);
/* The mapping that holds all packed weights, to query its pages. */
void model_weights_region(const struct model *m, const void **p, size_t *bytes);
/* The mapping of the threads' own memory; model_phase_region() gives that of ranks. */
void model_act_region(const struct model *m, const void **p, size_t *bytes);
/* What a pool for keys and values of this type needs to know of a model. */
void model_kv_shape_of(const struct model_config *c, enum kern_kv_type t,
                       struct kv_shape *out);
void model_kv_shape(const struct model *m, struct kv_shape *out);

/* How the steps of a phase are computed: by n_ranks tensor-parallel ranks of n_threads
 * threads each. A rank's matrices are views of the model's packed weights, and all phases
 * share the keys and values, so that a step may use another phase than the step before
 * without copying anything.   Paper: Sandwich 5.3. */
struct model_phase;
struct model_phase_opts {
    int n_ranks, n_threads; /* threads of each rank */
    /* [n_ranks * n_threads] threads[i]: the team's thread that is thread i % n_threads of
     * rank i / n_threads. Each number below n_ranks * n_threads occurs once. NULL: i. */
    const int *threads;
    int64_t max_step_tok; /* most tokens in a step; 0: the model's */
    /* How ranks sum, also where a table is set later; NULL: by the table. */
    const struct par_coll *coll;
};
/* ERR_ARG: more threads than the team has, or wrong thread numbers. ERR_LIMIT: more ranks
 * than PAR_RANKS_MAX. ERR_UNSUPPORTED: a deterministic model does not support this number of
 * ranks. Close the phase before its model. */
MUST int model_phase_open(struct model_phase **out, struct model *m,
                          const struct model_phase_opts *o);
void model_phase_close(struct model_phase **p);
/* The table by which ranks choose how they sum messages of different sizes, before the ranks
 * become processes: par_choice_default() at first. A deterministic model sums by itself and
 * never reads it. */
void model_phase_choice_set(struct model_phase *p, const struct par_choice *c);
const struct par_choice *model_phase_choice(const struct model_phase *p);
/* Measure it (par_comm_measure()) with all threads of all ranks at once, as in a step;
 * *timings are those of the first thread of rank 0, which decides for all. One rank has
 * nothing to measure. ERR_NOMEM. */
MUST int model_phase_choice_measure(struct model_phase *p, struct par_timings *timings);
/* The mapping that holds its activations. */
void model_phase_region(const struct model_phase *p, const void **at, size_t *bytes);

/* One step over a batch: at most the phase's max_step_tok tokens in all.
 * logits: [number of chunks that want them, vocab], in chunk order.
 * ERR_ARG: an id outside the vocabulary, a position past the end of the slot. Allocates
 * nothing. */
MUST int model_forward(struct model_phase *p, const struct model_chunk *chunks,
                       int n_chunks, float *logits);

/* ---- for studies of what a way to compute is worth ---- */

/* Multiply with `v`, which need not be in kern_variants, in place of the variant that was chosen
 * for its operator. Phases that are open keep their schedules: `v` has the rows and the format of
 * activations of the variant that it replaces, or they are opened later. */
void model_variant_set(struct model *m, const struct kern_variant *v);
/* Call fn for every packed matrix of the layers and the head, whose bytes it may change: for a
 * variant that reads them in another order. A tied embedding is read from the head. */
void model_mats_each(struct model *m, void (*fn)(void *ctx, const struct kern_mat *w),
                     void *ctx);
/* The attention of a layer, computed in another way than by the engine's operator. */
struct model_attend_args {
    const struct model_chunk
        *chunk; /* the step's only one; its keys and values are stored */
    int layer, n_heads, group, head_dim; /* `group`: query heads per KV head */
    const float *q; /* rotated: head h of token i at q + i q_stride + h / group q_unit +
                       h % group head_dim */
    float *out; /* to be written: head h of token i at out + i out_stride + h head_dim */
    int64_t q_stride, q_unit, out_stride;
    float scale; /* of the scores */
};
/* All threads of the phase call it at once; they may meet at par_barrier(). */
typedef void (*model_attend_fn)(void *ctx, const struct model_attend_args *a,
                                struct par_self *self);
/* Steps of p, which has one rank and one chunk in each step, attend by fn; NULL: as the engine
 * does. */
void model_phase_attend_set(struct model_phase *p, model_attend_fn fn, void *ctx);

/* Gives schedules: out[m - 1] for the product of m rows with w, for every m in 1 .. m_max,
 * computed by variant `v` on n_threads threads. Each must be legal. */
typedef int (*model_schedule_fn)(void *ctx, const struct kern_variant *v,
                                 const struct kern_mat *w, int64_t m_max, int n_threads,
                                 struct kern_schedule *out);
/* Ask fn once for every shape of matrix that a rank has, and keep its answers in place of
 * kern_schedule_default(), or restore the default schedules where fn is NULL. A schedule that this phase
 * has no memory for is replaced by the default: the head never splits K, and partial
 * products are bounded. On error nothing has changed. */
MUST int model_phase_schedules(struct model_phase *p, model_schedule_fn fn, void *ctx);
/* Bytes of matrices that a step of `to` reads at addresses where no step of `from` reads: what
 * a switch from one to the other would have to copy or fetch. Both are of one model. */
int64_t model_phase_moved_bytes(const struct model_phase *from,
                                const struct model_phase *to);

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
