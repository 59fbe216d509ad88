/* base/stats.h - the elementary statistics, each defined once.
 *
 * Inputs need not be sorted and are never modified (a call may take memory for a sorted
 * copy; without it the answer is NaN). An undefined answer is NaN, never 0. Threads:
 * any. */
#ifndef BASE_STATS_H
#define BASE_STATS_H

#include <stddef.h>

double stats_mean(const double *x, size_t n);
double stats_std(const double *x, size_t n); /* sample standard deviation, n - 1 */
double stats_min(const double *x, size_t n);
double stats_max(const double *x, size_t n);

/* Percentile by nearest rank: the ceil(q n)-th smallest, 0 < q <= 1. */
double stats_percentile(const double *x, size_t n, double q);
/* The mean of the two middle ones if n is even. */
double stats_median(const double *x, size_t n);
/* Median absolute deviation from the median, unscaled: the spread shown with a
 * median. */
double stats_mad(const double *x, size_t n);

/* The fewest samples for which percentile q is meaningful (the sample floor:
 * p95 72, p99 368, p99.9 3688; 1 up to p90). */
size_t stats_percentile_floor(double q);

/* Spearman's rank correlation, ties given their mean rank. */
double stats_spearman(const double *x, const double *y, size_t n);
/* Kendall's tau-b: of the pairs of points that differ in both x and y, the share that both
 * order alike less the share that they order the other way, corrected for ties; NaN where all
 * x or all y are equal. */
double stats_kendall(const double *x, const double *y, size_t n);

/* Geometric mean; NaN if any x <= 0. */
double stats_geomean(const double *x, size_t n);

#endif
