/* Latent attention: what the projections gave becomes queries, a key and a value that attention
 * takes. A query's part that is not rotated is multiplied by its head's matrix, in place of all
 * keys (the key's matrix is absorbed); key and value are one latent vector, normalised. */
#include <string.h>

#include "step/op/latent.h"

/* The key of a row, of which the first elements are rotated later, and behind it the value, whose
 * first ones nobody reads. */
static void key_and_value(const struct model_thread_ctx *w, int layer, int64_t row)
{
    const struct model_config *c = &w->m->c;
    const struct model_rank *r = w->rank;
    const struct model_tp_shard *p = &r->shard;
    const float *from = r->proj + row * r->ld_proj + p->mat_hi - p->mat_lo;
    float *key = r->qkv + row * r->ld_qkv + (int64_t)c->n_heads * c->head_dim - p->col_lo;

    memcpy(key, from, (size_t)c->rope_dims * sizeof(*key));
    w->m->kern.v[KERN_RMSNORM]->fn.rmsnorm(key + c->rope_dims, from + c->rope_dims,
                                           w->m->layers[layer].latent_norm, c->latent_dim,
                                           c->norm_eps);
    memcpy(key + c->head_dim, key, (size_t)c->head_dim * sizeof(*key));
}

static void query(struct model_thread_ctx *w, int layer, int head)
{
    const struct model_config *c = &w->m->c;
    const struct model_rank *r = w->rank;
    const float *from = r->proj + (int64_t)head * model_q_dim(c) - r->shard.mat_lo;
    float *to = r->qkv + (int64_t)head * c->head_dim - r->shard.col_lo;
    const struct model_rows in = {
        .x = from, .ld = r->ld_proj, .k = c->nope_dim, .n = w->n_rows};

    for (int64_t row = 0; row < w->n_rows; row++)
        memcpy(to + row * r->ld_qkv, from + row * r->ld_proj + c->nope_dim,
               (size_t)c->rope_dims * sizeof(*to));
    latent_head(w, MODEL_MAT_LATENT_K, layer, head - r->shard.q_lo, &in,
                to + c->rope_dims, r->ld_qkv);
}

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    const struct model_tp_shard *p = &w->rank->shard;
    int64_t lo, hi;

    model_sync(w, MODEL_T_LINEAR);
    par_share(p->kv ? w->n_rows : 0, w->id, w->n, &lo, &hi);
    for (int64_t row = lo; row < hi; row++)
        key_and_value(w, op->layer, row);
    par_share(p->q_hi - p->q_lo, w->id, w->n, &lo, &hi);
    for (int64_t h = lo; h < hi; h++)
        query(w, op->layer, p->q_lo + (int)h);
    w->own_heads = false;
    model_lap(w, MODEL_T_LINEAR);
}

static int fits(const struct model_phase *p)
{
    return p->m->c.latent_dim > 0
               ? OK
               : err_set(ERR_UNSUPPORTED, "the model has no latent attention");
}

const struct model_op_kind model_op_latent_in = {
    .name = "latent_in",
    .help = "of latent attention: heads' products of queries, norm of the key",
    .in_layer = true,
    .reads = MODEL_V_ALL | MODEL_V_QKV,
    .gives = MODEL_V_QKV,
    .fits = fits,
    .run = run};
