/* Add what attention gave to the residual stream, normalised. */
#include "step/step.h"

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    model_branch_add(w, w->m->layers[op->layer].attn_after);
}

const struct model_op_kind model_op_attn_add = {
    .name = "attn_add",
    .help = "add what attention gave, normalised where the model does",
    .in_layer = true,
    .reads = MODEL_V_X | MODEL_V_BRANCH,
    .ends = MODEL_V_BRANCH,
    .run = run};
