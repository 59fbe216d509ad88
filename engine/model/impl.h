/* model/impl.h - the inside of an opened model, for the files of this module only:
 * weights.c packs, choose.c picks kernels, act.c lays out a thread's memory, part.c deals
 * the units out to ranks, phase.c and schedules.c prepare how a phase computes, forward.c
 * and its neighbours compute. */
#ifndef MODEL_IMPL_H
#define MODEL_IMPL_H

#include "kernels/gemm.h"
#include "model/choose.h"
#include "model/model.h"
#include "par/coll.h"

/* What a thread owns while a step runs; each begins on its own page. */
struct model_scratch {
    float *stage; /* [rows of a block, ld_stage], normalised or gathered */
    void *a;      /* a block of packed activations that only this thread reads */
    void *gemm;   /* KERN_GEMM_SCRATCH_BYTES */
    void *attn;   /* KERN_ATTN_SCRATCH_BYTES */
    float *tail;  /* [max_step_tok, 16]: the head's last, ragged panel */
};

/* Where any of the degrees that a deterministic model allows cuts the rows of a matrix
 * that is split along K: row at[i] to at[i + 1] is a part of every sum, in this order. */
#define MODEL_BOUNDARIES_MAX 32
struct model_reduction_boundaries {
    int n; /* parts */
    int64_t at[MODEL_BOUNDARIES_MAX + 1];
};

struct model {
    struct model_config c;
    struct kern_table kern;
    struct model_variants variants; /* kern.v holds large_m; all 0 where not relaxed */
    struct par_team *team;          /* lent; with procs, theirs */
    int n_threads; /* of the team that opened it: scratches, thread slots */
    bool deterministic, shared;
    struct model_procs *procs; /* the ranks as processes, this one of them; or NULL */
    struct model_reduction_boundaries attn_boundaries,
        ffn_boundaries; /* where deterministic */
    struct model_load_stat load;
    enum kern_type kv_type;

    /* Weights, all in one mapping. */
    void *weights;
    size_t weights_bytes;
    struct model_placement *placement;
    struct model_layer *layers;
    float *out_norm;
    struct kern_mat head; /* also the embedding when c.tied */
    struct kern_mat
        head_tail; /* the last panel alone when the vocabulary does not fill it */
    void *embed;   /* [vocab, dim] of embed_type; NULL when c.tied */
    enum kern_type embed_type;

    /* Shapes that follow from c. */
    int group;        /* query heads per KV head */
    int64_t qkv_unit; /* columns of one KV group in the packed QKV, whole panels */
    float attn_scale; /* 1 / sqrt(head_dim) */
    int64_t ld_x;     /* floats from a row of x to the next */
    int64_t k_max;    /* the longest row of activations */

    /* All in one mapping. */
    int64_t max_step_tok, max_tok;
    void *act;
    size_t act_bytes;
    float *rope_cos, *rope_sin;    /* [max_tok, head_dim / 2] */
    int64_t *rows;                 /* [max_step_tok] rows of the step that want logits */
    struct model_scratch *scratch; /* [threads of the team] */

    uint64_t times_ns[MODEL_T_N]; /* thread 0 writes */
};

/* What a rank of a phase computes, in units: see model_tp_shard_of(). Ranges are [lo, hi). */
struct model_tp_shard {
    int q_lo, q_hi;           /* query heads whose projection and attention are its */
    bool kv;                  /* and the keys and values of their KV groups */
    int seq_i, seq_n;         /* which share of the keys its queries meet, of how many */
    int64_t col_lo, col_hi;   /* columns of the packed QKV, whole panels */
    int64_t attn_lo, attn_hi; /* rows of the attention output's matrix */
    int64_t ffn_lo, ffn_hi;   /* rows of down, columns of gate and of up */
};
/* Rank `rank` of n_ranks. As many ranks as KV groups or fewer: whole groups, by floor
 * partition. More: each group has several ranks, which split its query heads; the last of
 * them has the key and the value. More than query heads: a head has several ranks, each
 * of which meets its share of the keys, merges the results for its share of the head's
 * columns, and goes on with those. */
void model_tp_shard_of(const struct model *m, int rank, int n_ranks,
                       struct model_tp_shard *out);
/* Does m's team have enough threads? ERR_ARG, ERR_LIMIT. */
MUST int model_thread_slots_check(const struct model *m, int n_ranks, int n_threads);
/* The rank and number of each thread of the team: out[n_ranks * n_threads] by the
 * team's thread; see struct model_phase_opts. ERR_ARG. */
struct model_thread_slot {
    int rank, id;
};
MUST int model_thread_slots(struct model_thread_slot *out, int n_ranks, int n_threads,
                            const int *threads);
/* Does each of a rank's n_threads have whole KV groups? */
static inline bool model_groups_whole(const struct model *m,
                                      const struct model_tp_shard *p, int n_threads)
{
    return p->kv && p->q_lo % m->group == 0 &&
           (p->q_hi - p->q_lo) / m->group % n_threads == 0;
}
/* Set m's reduction boundaries. */
void model_boundaries_set(struct model *m);
/* Is this a degree of a deterministic model? ERR_UNSUPPORTED. */
MUST int model_boundaries_check(const struct model *m, int n_ranks);

/* A rank's part of a layer's matrices: views of the same packed bytes. Empty ones have no
 * panels or no rows. */
struct model_view {
    struct kern_mat qkv, o, gate_up, down;
};
void model_view_of(const struct model_layer *l, const struct model_tp_shard *p,
                   struct model_view *out);
static inline bool model_view_empty(const struct kern_mat *w)
{
    return w->n_panels == 0 || w->k == 0;
}

/* One rank of a phase. Its memory is its own: ranks meet in collectives only, and in
 * shared keys and values where they split a KV group. */
struct model_rank {
    struct par_group group; /* its threads */
    struct model_tp_shard shard;
    struct model_view *layers; /* [n_layers] */
    /* [max_step_tok] each, of the first layer's types; all ranks have the same for the
     * head, which all threads of the phase compute together. */
    const struct kern_schedule *schedules[MODEL_N_MATS];

    int64_t ld_qkv, ld_attn, ld_h;          /* floats from a row to the next */
    float *x, *x_last, *y, *qkv, *attn, *h; /* [max_step_tok, ld] */
    float *share, *lse; /* [max_step_tok, head_dim], [max_step_tok]: of seq_n > 1 */
    void *a_packed;     /* blocks shared by its threads */
    float *partial;     /* phase->partial_bytes */
    /* Of the running step: of a rank that cannot meet the others any more. Written by its
     * threads between two of its barriers, read after the second. */
    atomic_int rc;
    struct par_rank *endpoints; /* [n_threads]: thread i reduces with threads i */
};

struct model_step;
struct model_phase {
    struct model *m; /* lent */
    int n_ranks, n_threads;
    int64_t max_step_tok;
    const struct par_coll *coll; /* NULL: by size */
    bool shares_kv;              /* a KV group has several ranks */
    bool shares_seq;             /* a query head has several ranks */
    bool multiprocess;           /* each rank is in another process */
    struct model_rank *ranks;
    struct model_thread_slot *thread_slots; /* [m->n_threads], by the team's thread */
    int n_team; /* how many of the team's threads a step needs, from 0 on */
    struct model_view *views;
    struct par_rank *endpoints;
    struct kern_schedule *schedules; /* the tables that ranks point into */
    /* Of a deterministic model: the parts of sums, [2][parts][rows][columns], which all
     * ranks write and read; sums_floats each half. */
    float *sums;
    size_t sums_floats;
    void *act, *comms;
    size_t act_bytes, comms_bytes, partial_bytes;
};

/* Messages are cut into pieces that stay in the second-level cache with the buffers they
 * pass through. */
#define MODEL_MESSAGE_FLOATS ((size_t)32 << 10)

/* The first layer's, or the head. */
const struct kern_mat *model_mat(const struct model *m, enum model_mat which);
/* The most rows a block of packed activations can have, over the chosen variants. */
int model_block_rows(const struct model *m);
/* Room for partial products, so that a schedule may split K. */
#define MODEL_PARTIAL_BYTES ((size_t)16 << 20)

/* Hands out pieces of one mapping; with base == NULL it only counts. */
struct model_arena {
    char *base;
    size_t used;
};
#define MODEL_PAGE 4096 /* what one thread writes never shares a page with another's */

static inline void *model_take(struct model_arena *a, int64_t n, size_t size)
{
    a->used = (a->used + MODEL_PAGE - 1) & ~(size_t)(MODEL_PAGE - 1);
    a->used += (size_t)n * size;
    return a->base ? a->base + a->used - (size_t)n * size : NULL;
}

/* Memory for activations: seen by all processes, of a shared model. mem_unmap(). */
MUST void *model_map(const struct model *m, size_t bytes);
/* Write to every page first: it comes to this thread's node, and no request pays for
 * zeroing it. */
void model_touch(void *p, size_t bytes);

static inline int64_t model_pad16(int64_t n)
{
    return (n + KERN_PANEL - 1) / KERN_PANEL * KERN_PANEL;
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
/* This process's part of a step, whose phase it has a rank of. ERR_STATE. */
MUST int model_step_run(struct model *m, struct model_step *s);
/* All ranks' parts, each in its process. ERR_STATE names the one that failed. */
MUST int model_procs_step(struct model_procs *p, const struct model_step *s);
/* Time the GEMM variants that KERN_RELAXED allows and keep the faster. */
MUST int model_choose_gemm(struct model *m, enum kern_precision precision);
/* Lay out scratch and rotary tables. */
MUST int model_act_open(struct model *m);

#endif
