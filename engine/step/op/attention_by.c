/* Attention, by what ctx names. */
#include "step/step.h"

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    model_attend_by(w, op->layer, op->ctx);
}

static int fits(const struct model_phase *p)
{
    if (p->m->c.window > 0 || p->m->c.attn_softcap != 0 || p->m->c.sinks)
        return err_set(ERR_UNSUPPORTED,
                       "attention_by needs a model without windows, caps "
                       "of scores and sinks");
    return p->n_ranks == 1 && !p->multiprocess
               ? OK
               : err_set(ERR_UNSUPPORTED, "attention_by needs one rank, found %d",
                         p->n_ranks);
}

const struct model_op_kind model_op_attention_by = {
    .name = "attention_by",
    .help = "the same by a function that is given, for one sequence",
    .in_layer = true,
    .reads = MODEL_V_ALL | MODEL_V_QKV,
    .ends = MODEL_V_QKV,
    .gives = MODEL_V_HEADS,
    .fits = fits,
    .run = run};
