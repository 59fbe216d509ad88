/* tune/features.h - what a cost model that learns during a search sees of a schedule: it
 * predicts log(seconds) by ridge regression (base/ridge.h).
 *
 * It is small on purpose: adding a measurement and fitting take microseconds, so that the
 * cost of a policy is its measurements.   Threads: any. */
#ifndef TUNE_FEATURES_H
#define TUNE_FEATURES_H

#include "tune/space.h"

#define TUNE_N_FEATURES 32
/* Times measurements: a little of everything keeps features that never varied from getting a
 * weight. */
#define TUNE_RIDGE_LAMBDA 1e-3

/* Features of s for the shape: sizes, footprints against the caches, balance. */
void tune_features(const struct kern_schedule *s, const struct tune_shape *shape,
                   const struct kern_mat *w, const double caches[3],
                   double x[TUNE_N_FEATURES]);

#endif
