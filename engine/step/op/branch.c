/* What follows is summed apart from the residual stream. */
#include "step/step.h"

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    (void)op;
    model_branch(w);
}

static int fits(const struct model_phase *p)
{
    return model_sums_apart(&p->m->c)
               ? OK
               : err_set(ERR_UNSUPPORTED, "the model adds to its stream at once");
}

const struct model_op_kind model_op_branch = {
    .name = "branch",
    .help = "sum what follows apart from the residual stream",
    .in_layer = true,
    .reads = MODEL_V_X,
    .gives = MODEL_V_BRANCH,
    .fits = fits,
    .run = run};
