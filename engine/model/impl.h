/* model/impl.h - the inside of an opened model, for the files of this module only:
 * weights.c packs, choose.c chooses kernels, act.c lays out a thread's memory, part.c
 * assigns units to ranks, phase.c and schedules.c prepare a phase, and forward.c,
 * linear.c and attention.c compute a step. */
#ifndef MODEL_IMPL_H
#define MODEL_IMPL_H

#include "kernels/gemm.h"
#include "kernels/quant.h"
#include "model/choose.h"
#include "model/limits.h"
#include "model/model.h"
#include "par/coll.h"

/* The buffers that one thread owns while a step runs. Each buffer begins on its own
 * page. */
struct model_scratch {
    float *stage; /* [rows of a block, ld_stage], normalised or gathered, to be packed */
    void *a;      /* a block of packed activations that only this thread reads */
    void *gemm;   /* KERN_GEMM_SCRATCH_BYTES */
    void *attn;   /* KERN_ATTN_SCRATCH_BYTES */
    float *tail;  /* [max_step_tok, 16]: the head's last panel, not all columns used */
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
    struct model_variants variants; /* all 0 without KERN_RELAXED; kern.v has large_m */
    struct par_team *team;          /* lent; with procs: the team of this process */
    int n_threads; /* of the team that opened it; sizes `scratch` and thread slots */
    bool deterministic, shared, one_rank;
    struct model_procs *procs; /* the ranks as processes, including this one; or NULL */
    /* Set in a deterministic model only. */
    struct model_reduction_boundaries attn_boundaries, ffn_boundaries;
    struct model_load_stat load;
    enum kern_kv_type kv_type;

    /* Weights, all in one mapping. */
    void *weights;
    size_t weights_bytes;
    struct model_placement *placement;
    struct model_layer *layers;
    float *out_norm;
    struct kern_mat head;      /* also the embedding when c.tied */
    struct kern_mat head_tail; /* the last panel alone; n < 16 where it is not full */
    void *embed;               /* [vocab, dim] of embed_type; NULL when c.tied */
    enum kern_type embed_type;
    size_t embed_row_bytes;

    /* Shapes derived from c. */
    int group;        /* query heads per KV head */
    int64_t qkv_unit; /* columns of one KV group in the packed QKV, a multiple of 16 */
    int64_t v_unit;   /* columns of a V head in the packed V; 0 unless c.v_split */
    float attn_scale; /* 1 / sqrt(head_dim) */
    int64_t ld_x;     /* floats from a row of x to the next */
    int64_t k_max;    /* the longest row of activations */

    /* Buffers, all in one mapping `act`. */
    int64_t max_step_tok, max_tok;
    void *act;
    size_t act_bytes;
    float *rope_cos, *rope_sin; /* [max_tok, head_dim / 2] */
    int64_t *rows; /* [max_step_tok] rows of the step whose logits are wanted */
    struct model_scratch *scratch; /* [threads of the team] */

    uint64_t times_ns[MODEL_T_N]; /* written by thread 0 */
};

/* The shard of the model that a rank of a phase computes; see model_tp_shard_of(). Ranges
 * are [lo, hi). */
struct model_tp_shard {
    int q_lo, q_hi;         /* query heads that it projects and attends with */
    bool kv;                /* it also computes keys and values of these heads' groups */
    int seq_i, seq_n;       /* its queries attend to part seq_i of seq_n of the keys */
    int64_t col_lo, col_hi; /* columns of the packed QKV, whole panels */
    int64_t v_lo, v_hi;     /* columns of the packed V, whole panels */
    int64_t attn_lo, attn_hi; /* rows of the attention output's matrix */
    int64_t ffn_lo, ffn_hi;   /* rows of down, columns of gate and of up */
};
/* The shard of rank `rank` of n_ranks.
 *   n_ranks <= KV groups:  a rank has whole groups, by floor partition.
 *   n_ranks > KV groups:   each group has several ranks, which divide its query heads.
 *                          The last of them computes keys and values.
 *   n_ranks > query heads: each head has several ranks. A rank attends to its share of
 *                          the keys, merges the results of these ranks for its share of
 *                          the head's columns, and continues with those columns. */
void model_tp_shard_of(const struct model *m, int rank, int n_ranks,
                       struct model_tp_shard *out);
/* Does m's team have enough threads? ERR_ARG, ERR_LIMIT. */
MUST int model_thread_slots_check(const struct model *m, int n_ranks, int n_threads);
/* Set out[n_ranks * n_threads], indexed by the team's thread, to the thread's rank and
 * its number in that rank. `threads`: as in struct model_phase_opts. ERR_ARG: its thread
 * numbers are wrong. */
struct model_thread_slot {
    int rank, id;
};
MUST int model_thread_slots(struct model_thread_slot *out, int n_ranks, int n_threads,
                            const int *threads);
/* Does the rank have whole KV groups that divide evenly among its n_threads threads? */
static inline bool model_groups_whole(const struct model *m,
                                      const struct model_tp_shard *p, int n_threads)
{
    return p->kv && p->q_lo % m->group == 0 &&
           (p->q_hi - p->q_lo) / m->group % n_threads == 0;
}
/* Set m's reduction boundaries. */
void model_boundaries_set(struct model *m);
/* Does a deterministic model support n_ranks ranks? ERR_UNSUPPORTED: it does not. */
MUST int model_boundaries_check(const struct model *m, int n_ranks);

/* A rank's part of a layer's matrices, as views of the model's packed bytes. An empty
 * view has no panels or no rows. */
struct model_view {
    struct kern_mat qkv, v, o, gate_up, down;
};
void model_view_of(const struct model_layer *l, const struct model_tp_shard *p,
                   struct model_view *out);
static inline bool model_view_empty(const struct kern_mat *w)
{
    return w->n_panels == 0 || w->k == 0;
}

/* One rank of a phase. Ranks share only the memory of the collectives and, where several
 * ranks divide a KV group, its keys and values. */
struct model_rank {
    struct par_group group; /* its threads */
    struct model_tp_shard shard;
    struct model_view *layers; /* [n_layers] */
    /* [max_step_tok] each: the schedule for m rows is [m - 1], made for the type of the
     * first layer. All ranks have the same schedules of the head, which all threads of
     * the phase compute together. */
    const struct kern_schedule *schedules[MODEL_N_MATS];

    int64_t ld_qkv, ld_attn, ld_h; /* floats from a row to the next */
    /* [max_step_tok, ld]; in a row of qkv the columns of a split V follow the others */
    float *x, *x_last, *y, *qkv, *attn, *h;
    float *share, *lse; /* [max_step_tok, head_dim], [max_step_tok]; where seq_n > 1 */
    void *a_packed;     /* packed activations that its threads share */
    float *partial;     /* partial products, phase->partial_bytes */
    /* The error of the running step: OK until a collective is aborted. The rank's threads
     * write it between two barriers of the rank and read it after the second. */
    atomic_int rc;
    /* [n_threads]: thread i reduces with thread i of the other ranks. */
    struct par_rank *endpoints;
};

struct model_step;
struct model_phase {
    struct model *m; /* lent */
    int n_ranks, n_threads;
    int64_t max_step_tok;
    const struct par_coll *coll; /* NULL: chosen by message size */
    bool shares_kv;              /* a KV group has several ranks */
    bool shares_seq;             /* a query head has several ranks */
    bool multiprocess;           /* each rank is in another process */
    model_attend_fn attend;      /* NULL: as the engine does */
    void *attend_ctx;
    struct model_rank *ranks;
    struct model_thread_slot *thread_slots; /* [m->n_threads], by the team's thread */
    int n_team; /* a step uses the team's threads 0 .. n_team - 1 */
    struct model_view *views;
    struct par_rank *endpoints;
    struct kern_schedule *schedules; /* the tables that ranks point into */
    /* In a deterministic model: the parts of sums, [2][parts][rows][columns], which all
     * ranks write and read. Each of the two halves has sums_floats floats. */
    float *sums;
    size_t sums_floats;
    void *act, *comms;
    size_t act_bytes, comms_bytes, partial_bytes;
};

/* The most floats in one all-reduce. Longer messages are cut into pieces, so that a piece
 * and the buffers of its collective stay in the second-level cache. */
#define MODEL_MESSAGE_FLOATS ((size_t)32 << 10)

/* The matrix of this kind in the first layer, or the head. */
const struct kern_mat *model_mat(const struct model *m, enum model_mat which);
/* The most rows a block of packed activations can have, over the chosen variants. */
int model_block_rows(const struct model *m);
/* The most memory of a rank for partial products, for schedules that split K. */
#define MODEL_PARTIAL_BYTES ((size_t)16 << 20)

/* Allocates from one mapping; with base == NULL it only counts bytes. */
struct model_arena {
    char *base;
    size_t used;
};
/* Each allocation begins on a page, so that no two threads write to the same page. */
#define MODEL_PAGE 4096

static inline void *model_take(struct model_arena *a, int64_t n, size_t size)
{
    a->used = (a->used + MODEL_PAGE - 1) & ~(size_t)(MODEL_PAGE - 1);
    a->used += (size_t)n * size;
    return a->base ? a->base + a->used - (size_t)n * size : NULL;
}

/* Memory for activations, shared with forked processes if the model is shared. Free it
 * with mem_unmap(). */
MUST void *model_map(const struct model *m, size_t bytes);
/* Touch every page, so that it is allocated on this thread's memory node and no request
 * waits for the kernel to zero it. */
void model_touch(void *p, size_t bytes);

static inline int64_t model_pad16(int64_t n)
{
    return (n + KERN_PANEL - 1) / KERN_PANEL * KERN_PANEL;
}

/* Columns of a KV group in the packed QKV, and in the packed V. */
static inline int64_t model_qkv_unit(const struct model_config *c)
{
    return model_pad16((int64_t)(c->n_heads / c->n_kv_heads + 2 - c->v_split) *
                       c->head_dim);
}
static inline int64_t model_v_unit(const struct model_config *c)
{
    return c->v_split ? model_pad16(c->head_dim) : 0;
}

/* What of an opened model follows from its configuration alone: the sizes of units and groups. */
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
    if (rows < m->variants.small_m_rows &&
        w->type == m->variants.small_m->op - KERN_GEMM_F32)
        return m->variants.small_m;
    return m->kern.v[KERN_GEMM_F32 + w->type];
}

/* Pack f's tensors into m (m->c, kern and team are set). */
MUST int model_weights_pack(struct model *m, const struct format_file *f,
                            const struct model_opts *o);
/* Compute the part of a step that belongs to this process's ranks. ERR_STATE: a
 * collective was aborted. */
MUST int model_step_run(struct model *m, struct model_step *s);
/* Compute a step with each rank in its own process. ERR_STATE: a rank's process failed;
 * the message names it. */
MUST int model_procs_step(struct model_procs *p, const struct model_step *s);
/* With KERN_RELAXED: time the GEMM variants that it allows and keep the fastest. */
MUST int model_choose_gemm(struct model *m, enum kern_precision precision);
/* Allocate the threads' scratch buffers and the rotary tables. */
MUST int model_act_open(struct model *m);

#endif
