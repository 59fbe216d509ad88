#include "tune/features.h"

#include <math.h>

static double lg(double x)
{
    return log2(x > 0 ? x : 1e-9);
}

static double imbalance(int64_t items, int parts)
{
    int64_t most = (items + parts - 1) / parts;

    return (double)(most * parts) / (double)items - 1;
}

void tune_features(const struct kern_schedule *s, const struct tune_shape *shape,
                   const struct kern_mat *w, const double caches[3],
                   double x[TUNE_N_FEATURES])
{
    double w_elem = kern_type_weight_bytes(w->type), a_elem = tune_a_elem(shape->v);
    double blocks = (double)kern_a_blocks(shape->m, s->mr);
    double mr = (double)shape->m / blocks; /* rows of a block, as they fall */
    double cols = (double)s->np * KERN_PANEL;
    double bm = (double)s->bm, bn = (double)s->bn * KERN_PANEL, bk = (double)s->bk;
    int n = 0, linear;

    x[n++] = 1;
    x[n++] = lg(mr);
    x[n++] = lg(s->np);
    x[n++] = lg(bm);
    x[n++] = lg(bn);
    x[n++] = lg(bk);
    x[n++] = lg(mr * cols / (mr + cols)); /* multiplications for a load */
    x[n++] = lg(cols * bk * w_elem / caches[0]);
    x[n++] = lg(bm * bk * a_elem / caches[1]);
    x[n++] = lg(bm * bn * 4 / caches[1]);
    x[n++] = lg(bn * bk * w_elem / caches[2]);
    linear = n;
    x[n++] = imbalance(kern_a_blocks(shape->m, s->mr), s->pm);
    x[n++] = imbalance((w->n_panels + s->np - 1) / s->np, s->pn);
    x[n++] = lg(s->pm);
    x[n++] = lg(s->pk);
    x[n++] = s->order == KERN_ORDER_MNK;
    x[n++] = s->order == KERN_ORDER_KNM;
    for (int i = 1; i < linear; i++)
        x[n++] = x[i] * x[i] / 8; /* about the size of the others */
    while (n < TUNE_N_FEATURES)
        x[n++] = 0;
}
