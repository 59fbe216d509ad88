/* base/ridge.h - ridge regression: for each of several targets y the weights w that minimise
 * |x w - y|^2 + penalty |w|^2, all by one factorisation. One thread and one order of sums, so
 * that the same examples give the same weights.   Threads: one per struct. */
#ifndef BASE_RIDGE_H
#define BASE_RIDGE_H

#include <stdint.h>

#include "base/err.h"

struct stats_ridge {
    int n_features, n_targets;
    int64_t n;       /* examples added */
    double *xx;      /* [n_features][n_features] lower triangle of the sum of x x' */
    double *xy;      /* [n_targets][n_features] sums of x y */
    double *factor;  /* [n_features][n_features] Cholesky's, of the last solution */
    double *weights; /* [n_targets][n_features] of the last solution; at first 0 */
};

/* To be given back with stats_ridge_fini(), also after an error. ERR_NOMEM. */
MUST int stats_ridge_init(struct stats_ridge *r, int n_features, int n_targets);
void stats_ridge_fini(struct stats_ridge *r);
/* x [n_features], y [n_targets]. */
void stats_ridge_add(struct stats_ridge *r, const double *x, const double *y);
/* Set r->weights from all examples so far; as often as wanted. ERR_ARG: the features depend on
 * each other and the penalty is too small for this precision. */
MUST int stats_ridge_solve(struct stats_ridge *r, double penalty);
/* The value of the first target that the last solution predicts. */
double stats_ridge_predict(const struct stats_ridge *r, const double *x);

#endif
