/* model/impl.h - the inside of an opened model, for the files of this room only:
 * weights.c packs, choose.c picks kernels, act.c lays out activations, forward.c
 * computes. */
#ifndef MODEL_IMPL_H
#define MODEL_IMPL_H

#include "kernels/gemm.h"
#include "model/model.h"

/* What a thread owns while a step runs; each begins on its own page. */
struct model_scratch {
    float *stage; /* [rows of a block, ld_stage], normalised or gathered */
    void *a;      /* a block of packed activations that only this thread reads */
    void *gemm;   /* KERN_GEMM_SCRATCH_BYTES */
    void *attn;   /* KERN_ATTN_SCRATCH_BYTES */
    float *tail;  /* [max_step_tok, 16]: the head's last, ragged panel */
};

/* Schedules that were set for one number of threads. */
struct model_table {
    int n_threads;             /* 0: none */
    struct kern_schedule *all; /* [MODEL_N_MATS][max_step_tok] */
};
#define MODEL_TABLES_MAX 2 /* a phase has one number of threads: prefill, decode */

struct model {
    struct model_config c;
    struct kern_table kern;
    char kern_note[160]; /* how a GEMM variant was chosen by measurement; "" if it was not
                          */
    /* The GEMM of kern.v for the weights' type is for at least few_rows rows; fewer are
     * multiplied with `few`. 0: no such distinction. */
    const struct kern_variant *few;
    int64_t few_rows;
    struct par_team *team; /* lent */
    struct model_load_stat load;
    enum kern_type kv_type;

    /* Weights, all in one mapping. */
    void *weights;
    size_t weights_bytes;
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
    int64_t ld_x, ld_qkv, ld_attn, ld_h, ld_stage; /* floats from a row to the next */

    /* Activations, all in one mapping, for max_step_tok rows. */
    int64_t max_step_tok, max_tok;
    void *act;
    size_t act_bytes;
    float *x, *x_last, *qkv, *attn, *h;
    void *a_packed;                /* blocks shared by all threads */
    float *partial;                /* MODEL_PARTIAL_BYTES */
    float *rope_cos, *rope_sin;    /* [max_tok, head_dim / 2] */
    int64_t *rows;                 /* [max_step_tok] rows of the step that want logits */
    struct model_scratch *scratch; /* [threads of the team] */

    struct model_table tables[MODEL_TABLES_MAX];

    uint64_t times_ns[MODEL_T_N]; /* thread 0 writes */
};

/* The first layer's, or the head. */
const struct kern_mat *model_mat(const struct model *m, enum model_mat which);
/* How `rows` rows are multiplied with each of them on n_threads threads. */
void model_schedules(const struct model *m, int64_t rows, int n_threads,
                     struct kern_schedule out[MODEL_N_MATS]);
/* The most rows a block of packed activations can have, over the chosen variants. */
int model_block_rows(const struct model *m);
/* Room for partial products, so that a schedule may split K. */
#define MODEL_PARTIAL_BYTES ((size_t)16 << 20)

static inline int64_t model_pad16(int64_t n)
{
    return (n + KERN_PANEL - 1) / KERN_PANEL * KERN_PANEL;
}

static inline const struct kern_variant *
model_gemm(const struct model *m, const struct kern_mat *w, int64_t rows)
{
    if (rows < m->few_rows && w->type == m->few->op - KERN_GEMM_F32)
        return m->few;
    return m->kern.v[KERN_GEMM_F32 + w->type];
}

/* KV groups divide evenly over n threads: each can compute the projections, the rotation
 * and the attention of its own groups without waiting for another thread. */
static inline bool model_heads_divide(const struct model *m, int n_threads)
{
    return m->c.n_kv_heads % n_threads == 0;
}

/* Panels of a matrix that must stay with one thread, and this thread's panels [lo, hi).
 * Packing and computing share this, so that the thread that first touched a panel reads
 * it. */
static inline void model_panels(const struct kern_mat *w, int64_t together, int id, int n,
                                int64_t *lo, int64_t *hi)
{
    par_share(w->n_panels / together, id, n, lo, hi);
    *lo *= together;
    *hi *= together;
}
static inline int64_t model_qkv_together(const struct model *m, int n_threads)
{
    return model_heads_divide(m, n_threads) ? m->qkv_unit / KERN_PANEL : 1;
}

/* Pack f's tensors into m (m->c, kern and team are set). */
MUST int model_weights_pack(struct model *m, const struct model_file *f,
                            const struct model_opts *o);
/* Time the GEMM variants that KERN_RELAXED allows and keep the faster. */
MUST int model_choose_gemm(struct model *m, enum kern_precision precision);
/* Lay out activations, scratch and rotary tables. */
MUST int model_act_open(struct model *m);

#endif
