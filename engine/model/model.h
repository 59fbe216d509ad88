/* model/model.h - an opened model: packed weights and the forward step.
 *
 * Weights are packed once, in parallel, by the team that will read them, into units and
 * panels (kernels/pack.h) shared by prefill and decode:
 *   QKV      split along N; unit = one KV group: its g query heads, then its K, then its V
 *            head, each unit padded to whole panels
 *   output   split along K; unit = the g * head_dim rows of one KV group
 *   gate+up  split along N; panels alternate gate, up; unit = MODEL_FFN_UNIT columns
 *   down     split along K; unit = MODEL_FFN_UNIT rows
 *   head     split along N in vocabulary panels (also serves as a tied embedding)
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
    struct kern_mat qkv, o, gate_up, down;
    float *qkv_bias; /* NULL, or one float per packed QKV column */
};

/* The matrices of a model by what is multiplied; those of all layers have equal
 * shapes. */
enum model_mat {
    MODEL_MAT_QKV,
    MODEL_MAT_O,
    MODEL_MAT_GATE_UP,
    MODEL_MAT_DOWN,
    MODEL_MAT_HEAD,
    MODEL_N_MATS
};
/* The shapes they are packed in, padding included (see kern_mat_layout()). */
struct model_shape {
    const char *name; /* "qkv", "o", "gate_up", "down", "head" */
    int64_t n, k, k_unit;
};
void model_shapes(const struct model_config *c, struct model_shape out[MODEL_N_MATS]);

/* Who reads the weights most: whoever decodes reads all of them for every token. Ranks and
 * threads as in struct model_phase_opts; n_ranks 0: one rank of the whole team. */
struct model_numa_owners {
    int n_ranks, n_threads;
    const int *threads;
    /* [team] the memory node of each thread of the team by the system's number, -1 where
     * it is not known; NULL: of none. */
    const int *nodes;
};

struct model_opts {
    enum kern_type weight_type; /* the type to keep weights in; KERN_N_TYPES: as stored */
    enum kern_type kv_type;     /* KERN_F32 or KERN_BF16 */
    enum kern_precision precision;
    /* The same bits for a sequence whatever its company in a batch, the cutting of its
     * prompt, threads, ranks of each phase (1, 2, 3, 4, 6 or 8, no more than query heads)
     * and changes of phase. For KERN_EXACT. Costs time: batch-invariant kernels, and sums over
     * ranks that are made of the same parts in the same order for all of them. */
    bool deterministic;
    /* Ranks will be processes: activations lie in memory that fork() shares, as the keys
     * and values must (kv_pool_open_shared()). See model/procs.h. */
    bool shared;
    int64_t max_step_tok; /* most tokens in one forward step */
    int64_t max_tok;      /* longest sequence (rotary tables); 0: the file's */
    struct model_numa_owners owners;
    void (*progress)(void *ctx, int64_t done_bytes, int64_t all_bytes); /* may be NULL */
    void *progress_ctx;
};

struct model;

/* What loading did; stands in every record. */
struct model_load_stat {
    int64_t tensor_bytes; /* of the file's tensors, in the kept type */
    int64_t packed_bytes; /* of all packed weights */
    int64_t file_bytes;
    double load_s, load_gbps; /* tensor bytes over wall time */
    int64_t rss_peak_bytes;   /* of the process, while loading */
};

/* Pack `f`'s weights with the team's threads, in pages near those that own them. The file
 * is not needed afterwards. ERR_ARG: no such owners.
 * ERR_UNSUPPORTED: a kept type that would lose precision is refused. */
MUST int model_open(struct model **out, const struct format_file *f,
                    struct par_team *team, const struct model_opts *o);
void model_close(struct model **m);

const struct model_config *model_config_of(const struct model *m);
const struct kern_table *model_kern(const struct model *m);
/* The type the matrices of the layers are kept in (of the first layer's QKV, where a file
 * mixes types). */
enum kern_type model_weight_type(const struct model *m);
/* That type and the one of keys and values, for model/cost.h. */
struct model_cost_types model_cost_types_of(const struct model *m);
const struct model_load_stat *model_load_stat_of(const struct model *m);
/* How a GEMM variant was chosen by measurement; "" if it was not. */
const char *model_kern_note(const struct model *m);
/* Where the packed weights lie, seen by those that own them. The bytes of a row are its
 * first four summed up. */
enum model_place { /* the matrices by enum model_mat, and */
                   MODEL_PLACE_EMBED = MODEL_N_MATS,
                   MODEL_PLACE_NORMS, /* and biases */
                   MODEL_N_PLACES
};
struct model_numa_row {
    const char *name;        /* "qkv", ..., "embedding", "norms" */
    int64_t local_bytes;     /* in pages on the owner's node */
    int64_t elsewhere_bytes; /* on another */
    int64_t absent_bytes;    /* in no page */
    int64_t shared_bytes;    /* of no one node: read from all, or from an unknown one */
    /* Of the others, in large pages that several nodes' owners share; and of those, on
     * another node than the owner's: on one of them the page must be. */
    int64_t mixed_bytes, mixed_elsewhere_bytes;
};
struct model_numa_report {
    struct model_numa_row rows[MODEL_N_PLACES];
    int n_nodes;         /* the owners are on */
    int64_t bound_bytes; /* of pages that were asked for on a node */
    const char *how;     /* in words; lent */
};
/* Asks for every page: a second for some 20 GB in small pages. ERR_UNSUPPORTED: the kernel
 * does not tell; the bytes are then all shared. */
MUST int model_numa_report_get(const struct model *m, struct model_numa_report *out);
/* The pool's pages that hold keys and values of heads, to come from the memory nodes of the
 * owners that read them; before they are touched, the pool empty. A kernel that refuses is
 * a warning. ERR_STATE: the pool is in use. ERR_NOMEM. */
MUST int model_kv_bind(const struct model *m, struct kv_pool *pool);
/* Where they lie, as in a row of model_numa_report_get(). */
MUST int model_kv_numa_row(const struct model *m, struct kv_pool *pool,
                           struct model_numa_row *out);
/* The mapping that holds all packed weights, to ask where its pages are. */
void model_weights_region(const struct model *m, const void **p, size_t *bytes);
/* And the threads' own memory; see model_phase_region() for that of ranks. */
void model_act_region(const struct model *m, const void **p, size_t *bytes);
void model_kv_shape(const struct model *m, struct kv_shape *out);

/* How the steps of a phase are computed: by n_ranks tensor-parallel ranks of n_threads
 * threads each. A rank's matrices are views of the model's packed weights and its keys and
 * values lie where every other phase looks for them, so that a step may use another phase
 * than the one before and nothing is copied.   Paper: Sandwich 5.3. */
struct model_phase;
struct model_phase_opts {
    int n_ranks, n_threads; /* threads of each rank */
    /* [n_ranks * n_threads] which thread of the team is thread i % n_threads of rank
     * i / n_threads: the numbers below n_ranks * n_threads, each once. NULL: i itself. */
    const int *threads;
    int64_t max_step_tok;        /* most tokens in a step; 0: the model's */
    const struct par_coll *coll; /* how ranks sum; NULL: by the size of the message */
};
/* ERR_ARG: more threads than the team has, no such threads. ERR_LIMIT: more ranks than
 * PAR_RANKS_MAX. ERR_UNSUPPORTED: ranks that a deterministic model does not have. The
 * phase is closed before its model. */
MUST int model_phase_open(struct model_phase **out, struct model *m,
                          const struct model_phase_opts *o);
void model_phase_close(struct model_phase **p);
/* The mapping that holds its activations. */
void model_phase_region(const struct model_phase *p, const void **at, size_t *bytes);

/* One step over a batch: at most the phase's max_step_tok tokens in all.
 * logits: [number of chunks that want them, vocab], in chunk order.
 * ERR_ARG: an id outside the vocabulary, a position past the region. Allocates
 * nothing. */
MUST int model_forward(struct model_phase *p, const struct model_chunk *chunks,
                       int n_chunks, float *logits);

/* Where schedules come from: out[m - 1] for the product of m rows with w, for every m in
 * 1 .. m_max, as `v` computes it on n_threads threads; each legal there. */
typedef int (*model_schedule_fn)(void *ctx, const struct kern_variant *v,
                                 const struct kern_mat *w, int64_t m_max, int n_threads,
                                 struct kern_schedule *out);
/* Ask fn once for every shape of matrix that a rank has, and keep its answers in place of
 * kern_schedule_default(), or go back to that where fn is NULL. A schedule that this phase has no room for stays the default:
 * the head never splits K, and partial products are bounded. On error nothing has
 * changed. */
MUST int model_phase_schedules(struct model_phase *p, model_schedule_fn fn, void *ctx);
/* Bytes of matrices that this phase reads from anywhere but the model's packed weights. */
int64_t model_phase_copied_bytes(const struct model_phase *p);

/* Time each thread 0 spent by operator since the last call, for profiles (ns). */
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
