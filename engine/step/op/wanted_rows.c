/* After this operator a step computes only the rows whose logits are wanted. */
#include <string.h>

#include "step/step.h"

/* Copies the residual stream of the rows whose logits are wanted to x_last. w->rows is set to where
 * these rows are in the output of attention. */
static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    const struct model *m = w->m;
    int64_t lo, hi;

    (void)op;
    if (w->step->n_logits == 0) {
        w->done = true; /* the step only had to store keys and values */
        return;
    }
    par_share(w->step->n_logits, w->id, w->n, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        memcpy(w->rank->x_last + r * m->ld_x, w->rank->x + m->rows[r] * m->ld_x,
               (size_t)m->ld_x * sizeof(float));
    w->x = w->rank->x_last;
    w->n_rows = w->step->n_logits;
    w->rows = m->rows;
}

const struct model_op_kind model_op_wanted_rows = {
    .name = "wanted_rows",
    .help = "go on with the rows whose logits are wanted",
    .in_layer = true,
    .reads = MODEL_V_X | MODEL_V_ALL | MODEL_V_HEADS,
    .ends = MODEL_V_ALL,
    .gives = MODEL_V_WANTED,
    .run = run};
