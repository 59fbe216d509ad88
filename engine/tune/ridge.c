#include "tune/ridge.h"

#include <math.h>
#include <string.h>

/* A little of everything keeps features that never varied from getting a weight. */
#define LAMBDA 1e-3

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

void tune_ridge_add(struct tune_ridge *r, const double x[TUNE_N_FEATURES],
                    double log_seconds)
{
    for (int i = 0; i < TUNE_N_FEATURES; i++) {
        for (int j = 0; j < TUNE_N_FEATURES; j++)
            r->xx[i][j] += x[i] * x[j];
        r->xy[i] += x[i] * log_seconds;
    }
    r->n++;
}

/* Cholesky of X'X + lambda n, then two triangular solves. */
void tune_ridge_fit(struct tune_ridge *r)
{
    double l[TUNE_N_FEATURES][TUNE_N_FEATURES] = {{0}}, *y = r->weight;

    for (int i = 0; i < TUNE_N_FEATURES; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = r->xx[i][j] + (i == j ? LAMBDA * (r->n + 1) : 0);

            for (int k = 0; k < j; k++)
                sum -= l[i][k] * l[j][k];
            l[i][j] = i == j ? sqrt(sum) : sum / l[j][j];
        }
    }
    for (int i = 0; i < TUNE_N_FEATURES; i++) {
        y[i] = r->xy[i];
        for (int k = 0; k < i; k++)
            y[i] -= l[i][k] * y[k];
        y[i] /= l[i][i];
    }
    for (int i = TUNE_N_FEATURES - 1; i >= 0; i--) {
        for (int k = i + 1; k < TUNE_N_FEATURES; k++)
            y[i] -= l[k][i] * y[k];
        y[i] /= l[i][i];
    }
}

double tune_ridge_predict(const struct tune_ridge *r, const double x[TUNE_N_FEATURES])
{
    double sum = 0;

    for (int i = 0; i < TUNE_N_FEATURES; i++)
        sum += r->weight[i] * x[i];
    return sum;
}
