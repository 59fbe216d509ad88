/* The output projection of attention, added to the residual stream. */
#include "step/step.h"

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    const struct kern_mat *o = &w->rank->layers[op->layer].mats[MODEL_MAT_O];
    const struct model_rows in = {.x = w->rank->attn,
                                  .ld = w->rank->ld_attn,
                                  .k = o->k,
                                  .n = w->n_rows,
                                  .rows = w->rows,
                                  .scale = w->m->c.residual_scale};

    if (w->m->deterministic)
        model_linear_batch_invariant(w, MODEL_MAT_O, o, &in, &w->m->attn_boundaries,
                                     w->rank->shard.attn_lo);
    else
        model_linear_residual(w, MODEL_MAT_O, o, &in);
    w->rows = NULL;
    if (w->m->layers[op->layer].o_bias)
        model_add_bias(w, w->m->layers[op->layer].o_bias);
}

const struct model_op_kind model_op_attn_out = {.name = "attn_out",
                                                .help =
                                                    "output projection, added over ranks",
                                                .in_layer = true,
                                                .reads = MODEL_V_X | MODEL_V_ATTN,
                                                .ends = MODEL_V_ATTN,
                                                .run = run};
