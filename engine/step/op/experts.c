/* A mixture of experts in place of the MLP. */
#include "step/step.h"

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    model_experts(w, op->layer);
}

static int fits(const struct model_phase *p)
{
    return p->m->c.n_experts > 0 ? OK
                                 : err_set(ERR_UNSUPPORTED, "the model has no experts");
}

const struct model_op_kind model_op_experts = {
    .name = "experts",
    .help = "RMSNorm, router, the experts' MLPs, added over ranks",
    .in_layer = true,
    .reads = MODEL_V_X,
    .fits = fits,
    .run = run};
