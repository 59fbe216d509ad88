/* All threads have attended, so that the layer's keys and values are stored. */
#include "step/step.h"

/* The sum over ranks in between keeps every rank from being
 * a layer ahead of another. */
static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    struct model_phase *p = w->phase;

    model_sync(w, MODEL_T_ATTN);
    if (p->stored && !p->multiprocess && w->id == 0 &&
        atomic_fetch_add(&p->n_stored, 1) + 1 == (op->layer + 1) * p->n_ranks)
        p->stored(p->stored_ctx, op->layer);
}

const struct model_op_kind model_op_stored = {
    .name = "stored",
    .help = "wait for all heads; keys and values are stored",
    .in_layer = true,
    .reads = MODEL_V_HEADS,
    .ends = MODEL_V_HEADS,
    .gives = MODEL_V_ATTN,
    .run = run};
