/* Add what the MLP gave to the residual stream, normalised. */
#include "step/step.h"

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    model_branch_add(w, w->m->layers[op->layer].ffn_after);
}

const struct model_op_kind model_op_mlp_add = {
    .name = "mlp_add",
    .help = "add what the MLP gave, normalised where the model does",
    .in_layer = true,
    .reads = MODEL_V_X | MODEL_V_BRANCH,
    .ends = MODEL_V_BRANCH,
    .run = run};
