/* Attention, by the engine. In the last layer it computes only the rows that are wanted next. */
#include "step/step.h"

extern const struct model_op_kind model_op_wanted_rows;

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    w->last = op[1].kind == &model_op_wanted_rows;
    model_attend(w, op->layer);
}

const struct model_op_kind model_op_attention = {
    .name = "attention",
    .help = "normalise and rotate queries and keys, store, attend",
    .in_layer = true,
    .reads = MODEL_V_ALL | MODEL_V_QKV,
    .ends = MODEL_V_QKV,
    .gives = MODEL_V_HEADS,
    .run = run};
