/* experiments/study/support/elasticity.h - which share of a change of speed each resource has.
 *
 * The elasticity of a resource is d ln speed / d ln resource: 1 where twice as much of it makes a
 * program twice as fast, 0 where more of it does nothing. Where a program's time follows from the
 * times that its kinds of work take on their resources, and grows with all of them in proportion,
 * the elasticities sum to 1 (Euler), however much the kinds overlap.
 *
 * A change that was tried has several effects. For change i, y[i] = ln(speed / speed without it)
 * is the sum over resources r of x[i][r] e[r], where x[i][r] = ln of what was left of resource
 * r, or, as this is the same, of the work of kind r without the change over the work with it.
 * Threads: any. */
#ifndef STUDY_ELASTICITY_H
#define STUDY_ELASTICITY_H

#include <stdbool.h>

#define STUDY_RESOURCES_MAX 8

/* Solve n changes for the elasticities e[n] of n resources. false: they do not tell the resources
 * apart, or a number is not finite; e is NaN. */
bool study_elasticity_solve(double e[], int n, const double x[][STUDY_RESOURCES_MAX],
                            const double y[]);

/* The same where one resource changes in every trial, such as time, of which other programs take
 * some, and where its elasticity is known to be `value`: this stands in the equations of the other
 * changes, so that a round in which others took as much as its own change does not spoil them.
 * e[known] is what that change says by itself: a check. */
bool study_elasticity_known(double e[], int n, int known, double value,
                            const double x[][STUDY_RESOURCES_MAX], const double y[]);

/* The median of v[n], and its 95 % interval by order; ends are NaN with fewer than six. */
struct study_estimate {
    double value, lo, hi;
};
struct study_estimate study_estimate_median(const double *v, int n);

#endif
