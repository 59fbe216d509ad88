/* tune/ridge.h - a cost model that learns during a search: ridge regression of
 * log(seconds) on features of a schedule.
 *
 * It is small on purpose: adding a measurement and fitting take microseconds, so that the
 * cost of a policy is its measurements.   Threads: one owner. */
#ifndef TUNE_RIDGE_H
#define TUNE_RIDGE_H

#include "tune/space.h"

#define TUNE_N_FEATURES 32

/* Features of s for the shape: sizes, footprints against the caches, balance. */
void tune_features(const struct kern_schedule *s, const struct tune_shape *shape,
                   const struct kern_mat *w, const double caches[3],
                   double x[TUNE_N_FEATURES]);

struct tune_ridge {
    double xx[TUNE_N_FEATURES][TUNE_N_FEATURES], xy[TUNE_N_FEATURES];
    double weight[TUNE_N_FEATURES];
    int n; /* measurements added */
};
void tune_ridge_add(struct tune_ridge *r, const double x[TUNE_N_FEATURES],
                    double log_seconds);
void tune_ridge_fit(struct tune_ridge *r);
double tune_ridge_predict(const struct tune_ridge *r, const double x[TUNE_N_FEATURES]);

#endif
