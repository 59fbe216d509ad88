#include "base/ridge.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

int stats_ridge_init(struct stats_ridge *r, int n_features, int n_targets)
{
    *r = (struct stats_ridge){.n_features = n_features, .n_targets = n_targets};
    r->xx = mem_new(MEM_OTHER, (size_t)n_features * n_features, sizeof(*r->xx));
    r->xy = mem_new(MEM_OTHER, (size_t)n_targets * n_features, sizeof(*r->xy));
    r->factor = mem_new(MEM_OTHER, (size_t)n_features * n_features, sizeof(*r->factor));
    r->weights = mem_new(MEM_OTHER, (size_t)n_targets * n_features, sizeof(*r->weights));
    return r->xx && r->xy && r->factor && r->weights ? OK : ERR_NOMEM;
}

void stats_ridge_fini(struct stats_ridge *r)
{
    mem_free(r->xx);
    mem_free(r->xy);
    mem_free(r->factor);
    mem_free(r->weights);
    *r = (struct stats_ridge){0};
}

void stats_ridge_add(struct stats_ridge *r, const double *x, const double *y)
{
    int d = r->n_features;

    for (int i = 0; i < d; i++) {
        if (x[i] == 0)
            continue; /* most hashed features of a text */
        for (int j = 0; j <= i; j++)
            r->xx[(size_t)i * d + j] += x[i] * x[j];
        for (int t = 0; t < r->n_targets; t++)
            r->xy[(size_t)t * d + i] += x[i] * y[t];
    }
    r->n++;
}

/* Cholesky's factor, in place of the lower triangle. */
static int factorise(double *a, int d)
{
    for (int i = 0; i < d; i++) {
        double *row = a + (size_t)i * d;

        for (int j = 0; j <= i; j++) {
            const double *other = a + (size_t)j * d;
            double sum = row[j];

            for (int k = 0; k < j; k++)
                sum -= row[k] * other[k];
            if (i == j && !(sum > 0))
                return err_set(
                    ERR_ARG,
                    "ridge: feature %d depends on those before: expected a larger "
                    "penalty",
                    i);
            row[j] = i == j ? sqrt(sum) : sum / other[j];
        }
    }
    return OK;
}

/* y becomes w, where l l' w = y. */
static void substitute(const double *l, double *y, int d)
{
    for (int i = 0; i < d; i++) {
        for (int k = 0; k < i; k++)
            y[i] -= l[(size_t)i * d + k] * y[k];
        y[i] /= l[(size_t)i * d + i];
    }
    for (int i = d - 1; i >= 0; i--) {
        for (int k = i + 1; k < d; k++)
            y[i] -= l[(size_t)k * d + i] * y[k];
        y[i] /= l[(size_t)i * d + i];
    }
}

int stats_ridge_solve(struct stats_ridge *r, double penalty)
{
    int d = r->n_features;

    memcpy(r->factor, r->xx, (size_t)d * d * sizeof(*r->xx));
    memcpy(r->weights, r->xy, (size_t)r->n_targets * d * sizeof(*r->xy));
    for (int i = 0; i < d; i++)
        r->factor[(size_t)i * d + i] += penalty;
    TRY(factorise(r->factor, d));
    for (int t = 0; t < r->n_targets; t++)
        substitute(r->factor, r->weights + (size_t)t * d, d);
    return OK;
}

double stats_ridge_predict(const struct stats_ridge *r, const double *x)
{
    double sum = 0;

    for (int i = 0; i < r->n_features; i++)
        sum += r->weights[i] * x[i];
    return sum;
}
