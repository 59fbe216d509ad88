#include "step/step.h"

void model_offload_ffn(struct model_thread_ctx *w, int layer,
                       void (*cpu)(struct model_thread_ctx *w, int layer,
                                   const struct model_view *v))
{
    struct model_phase *p = w->phase;
    const struct model *m = w->m;
    const struct model_view *v = &p->offload->views[layer];
    const struct model_rows in = model_ffn_rows(w, layer);
    int64_t n_rows = w->n_rows, lo, hi;

    par_share(n_rows, w->id, w->n, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        model_norm(m, p->offload->x + r * m->ld_x, in.x + r * m->ld_x, in.norm_w,
                   in.norm_b, in.k);
    model_sync(w, MODEL_T_NORM_ROPE);
    if (w->id == 0)
        p->offload_rows = p->offload->begin(p->offload->ctx, layer, n_rows);
    model_sync(w, MODEL_T_LINEAR);
    w->n_rows = p->offload_rows;
    if (w->n_rows > 0 && !model_view_empty(&v->mats[MODEL_MAT_DOWN]))
        cpu(w, layer, v);
    w->n_rows = n_rows;
    if (w->id == 0)
        model_fail(w, p->offload->end(p->offload->ctx, layer, w->x));
    model_sync(w, MODEL_T_WAIT);
}
