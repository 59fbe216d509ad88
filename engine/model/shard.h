/* model/shard.h - which units of the weights each rank has, and its part of each matrix: a
 * description of the packed bytes, which are the same for any number of ranks. */
#ifndef MODEL_SHARD_H
#define MODEL_SHARD_H

#include "model/state.h"

/* The shard of the model that a rank of a phase computes; see model_tp_shard_of(). Ranges
 * are [lo, hi). */
struct model_tp_shard {
    int q_lo, q_hi;   /* query heads that it projects and attends with */
    int n_heads;      /* of the model */
    bool kv;          /* it also computes keys and values of these heads' groups */
    int seq_i, seq_n; /* its queries attend to part seq_i of seq_n of the keys */
    /* Columns where attention reads queries, key and value, whole panels; and of the packed QKV,
     * which are others with latent attention. */
    int64_t col_lo, col_hi, mat_lo, mat_hi;
    int64_t v_lo, v_hi;       /* columns of the packed V, whole panels */
    int64_t attn_lo, attn_hi; /* rows of the attention output's matrix */
    struct {
        int64_t lo, hi; /* rows of down, columns of gate and of up */
        int inputs;     /* model_mlp_inputs(), but of experts 2 */
    } mlp[MODEL_N_MLPS];
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
    struct kern_mat *mats; /* as those of struct model_layer */
};
/* Its part of the layer's i-th matrix. */
void model_view_of(const struct model_layer *l, int i, const struct model_tp_shard *p,
                   struct kern_mat *out);
/* Panels [lo, hi) of a matrix that is split along N. */
void model_panels_of(struct kern_mat *out, const struct kern_mat *w, int64_t lo,
                     int64_t hi);
static inline bool model_view_empty(const struct kern_mat *w)
{
    return w->n_panels == 0 || w->k == 0;
}

#endif
