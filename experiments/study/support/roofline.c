#include "experiments/study/support/roofline.h"

#include <math.h>

const struct study_roofline_model study_roofline_qwen_1_8b = {
    .hidden = 2048,
    .inner = 5504,
    .vocab = 151936,
    .n_blocks = 24,
    .weight_bytes = 0.5,
    .act_bytes = 2,
};

/* l tokens through the matrices of all blocks, and `rows` through the output projection.
 * Weights carry a scale and a bias for each output channel, 2 bytes together: the paper's
 * 10 h + 4 i + 2 v. */
static void linear(struct study_roofline_work *w, const struct study_roofline_model *m,
                   double l, double rows)
{
    double h = m->hidden, i = m->inner, v = m->vocab, b = m->weight_bytes;

    w->linear_flop = m->n_blocks * (8 * l * h * h + 6 * l * h * i) + 2 * rows * h * v;
    w->linear_bytes = m->n_blocks * (m->act_bytes * (9 * l * h + 3 * l * i) +
                                     b * (4 * h * h + 3 * h * i) + 10 * h + 4 * i) +
                      m->act_bytes * (rows * h + rows * v) + b * h * v + 2 * v;
}

static double other(const struct study_roofline_model *m, double l, double factor)
{
    return m->n_blocks * factor * l * m->hidden;
}

void study_roofline_prefill(struct study_roofline_work *out,
                            const struct study_roofline_model *m, double l,
                            const struct study_roofline_opts *o)
{
    linear(out, m, l, o->head_rows);
    out->attention_flop = m->n_blocks * (4 * l * l * m->hidden + 22 * l * l);
    out->attention_bytes = m->n_blocks * (16 * l * m->hidden + 24 * l * l);
    out->other_bytes = other(m, l, o->other_factor);
}

void study_roofline_decode(struct study_roofline_work *out,
                           const struct study_roofline_model *m, double ctx,
                           const struct study_roofline_opts *o)
{
    linear(out, m, 1, 1);
    out->attention_flop = m->n_blocks * (4 * ctx * m->hidden + 22 * ctx);
    out->attention_bytes = m->n_blocks * (8 * ctx * m->hidden + 24 * ctx + 8 * m->hidden);
    out->other_bytes = other(m, 1, o->other_factor);
}

double study_roofline_seconds(const struct study_roofline_work *w,
                              const struct study_roofline_machine *m, double g)
{
    double bytes = m->gbps * g;

    /* not fmax(): a peak that is not known makes no bound */
    double linear = w->linear_flop / (m->linear_rate * g);
    double attention = w->attention_flop / (m->attention_rate * g);

    if (isnan(linear + attention + bytes))
        return NAN;
    return fmax(linear, w->linear_bytes / bytes) +
           fmax(attention, w->attention_bytes / bytes) + w->other_bytes / bytes;
}
