/* The norm of queries and of keys over all heads of a token. */
#include "step/step.h"

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    model_norm_rows(w, op->layer);
}

static int fits(const struct model_phase *p)
{
    return p->m->c.qk_norm_row
               ? OK
               : err_set(ERR_UNSUPPORTED, "the model has no norm over all heads");
}

const struct model_op_kind model_op_qk_norm_row = {
    .name = "qk_norm_row",
    .help = "RMSNorm of queries, and of keys, over all heads",
    .in_layer = true,
    .reads = MODEL_V_ALL | MODEL_V_QKV,
    .fits = fits,
    .run = run};
