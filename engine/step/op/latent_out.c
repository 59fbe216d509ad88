/* Latent attention: the latent vector that a head attended to becomes its value. */
#include "step/op/latent.h"

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    const struct model_config *c = &w->m->c;
    const struct model_rank *r = w->rank;
    int64_t lo, hi;

    par_share(r->shard.q_hi - r->shard.q_lo, w->id, w->n, &lo, &hi);
    for (int64_t h = lo; h < hi; h++) {
        const struct model_rows in = {.x = r->heads + h * c->head_dim + c->rope_dims,
                                      .ld = r->ld_heads,
                                      .k = c->latent_dim,
                                      .n = w->n_rows,
                                      .rows = w->rows};

        latent_head(w, MODEL_MAT_LATENT_V, op->layer, (int)h, &in,
                    r->attn + h * c->value_dim, r->ld_attn);
    }
    model_sync(w, MODEL_T_LINEAR);
    w->rows = NULL;
}

static int fits(const struct model_phase *p)
{
    return p->m->c.latent_dim > 0
               ? OK
               : err_set(ERR_UNSUPPORTED, "the model has no latent attention");
}

const struct model_op_kind model_op_latent_out = {
    .name = "latent_out",
    .help = "of latent attention: heads' products of what they attended to",
    .in_layer = true,
    .reads = MODEL_V_ATTN,
    .ends = MODEL_V_ATTN,
    .gives = MODEL_V_ATTN,
    .fits = fits,
    .run = run};
