/* Rows of the embedding, by the ids of the step's tokens. */
#include <string.h>

#include "step/step.h"

static void embed_row(const struct model *m, int64_t id, float *x)
{
    int64_t dim = m->c.dim;
    const void *row = (const char *)m->embed + (size_t)id * m->embed_row_bytes;

    if (!m->embed)
        kern_mat_get_row(&m->head, id, x);
    else if (m->embed_type == KERN_F32)
        memcpy(x, row, (size_t)dim * sizeof(float));
    else if (m->embed_type == KERN_BF16)
        m->kern.v[KERN_FROM_BF16]->fn.from_bf16(x, row, dim);
    else if (m->embed_type == KERN_F16)
        m->kern.v[KERN_FROM_F16]->fn.from_f16(x, row, dim);
    else
        kern_quant_to_f32(kern_quant_of(m->embed_type), x, row, dim);
    for (int64_t i = 0; m->c.embed_scale != 0 && i < dim; i++)
        x[i] *= m->c.embed_scale;
}

static void run(struct model_thread_ctx *w, const struct model_op *op)
{
    const struct model *m = w->m;
    const struct model_step *s = w->step;
    int64_t lo, hi, row = 0;

    (void)op;
    par_share(s->n_tok, w->id, w->n, &lo, &hi);
    for (int c = 0; c < s->n_chunks; c++)
        for (int64_t i = 0; i < s->chunks[c].n_tok; i++, row++)
            if (row >= lo && row < hi)
                embed_row(m, s->chunks[c].ids[i], w->rank->x + row * m->ld_x);
    model_sync(w, MODEL_T_NORM_ROPE);
}

const struct model_op_kind model_op_embed = {.name = "embed",
                                             .help = "the rows of the tokens' ids",
                                             .gives = MODEL_V_X | MODEL_V_ALL,
                                             .run = run};
