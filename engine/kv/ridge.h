/* kv/ridge.h - ridge regression in float32: for each of several targets y the weights w that
 * minimise |x w - y|^2 + lambda n |w|^2, all by one factorisation. One thread and one order of
 * sums, so that the same examples give the same weights.   Threads: one per struct. */
#ifndef KV_RIDGE_H
#define KV_RIDGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct kv_ridge {
    int n_features, n_targets;
    int64_t n;      /* examples added */
    float *xx;      /* [n_features][n_features] lower triangle of the sum of x x' */
    float *xy;      /* [n_targets][n_features] sums of x y */
    float *factor;  /* [n_features][n_features] Cholesky's, of the last solution */
    float *weights; /* [n_targets][n_features] of the last solution */
};

/* To be given back with kv_ridge_fini(), also after an error. ERR_NOMEM. */
MUST int kv_ridge_init(struct kv_ridge *r, int n_features, int n_targets);
void kv_ridge_fini(struct kv_ridge *r);
/* x [n_features], y [n_targets]. */
void kv_ridge_add(struct kv_ridge *r, const float *x, const float *y);
/* Set r->weights from all examples so far; as often as wanted. ERR_ARG: the features depend on
 * each other and lambda is too small for this precision. */
MUST int kv_ridge_solve(struct kv_ridge *r, float lambda);

#endif
