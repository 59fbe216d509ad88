/* base/stats_interval.h - every 95 % interval that is reported, each defined once. An undefined
 * one is NaN, never 0.   Threads: any. */
#ifndef BASE_STATS_INTERVAL_H
#define BASE_STATS_INTERVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rng.h"

/* Student's t: half of the interval of the mean of n values. NaN: n < 2. */
double stats_mean_half95(const double *x, size_t n);
/* Half of the interval of the difference of the means of a and b: of pairs (a[i] is changed), or
 * of two samples with one variance, where one of them may have a single value. NaN: too few. */
double stats_difference_half95(double *a, size_t n_a, const double *b, size_t n_b,
                               bool pairs);

/* The smallest difference, as a share, that a comparison could have seen whose A/A gave a ratio
 * with the interval [lo, hi]: that of the end which is farther from 1. 0.05 stands for ratios from
 * 1 / 1.05 to 1.05, which could not be told apart. NaN: there is no interval. */
double stats_detectable_frac(double lo, double hi);

/* Wilson's interval of a probability of which k in n trials came true. NaN: n is 0. */
void stats_wilson95(size_t k, size_t n, double *lo, double *hi);

/* The interval of the q-quantile is between the order statistics lo and hi, from 0, of n >= 1
 * values: how many of them fall below the true quantile is binomial. */
void stats_quantile95(int n, double q, int *lo, int *hi);

/* The middle 95 % of what a bootstrap has drawn. */
void stats_percentile95(const double *draws, size_t n, double *lo, double *hi);

/* A block bootstrap of a series: blocks of consecutive values are drawn and put one behind
 * another, so that the dependence of neighbours stays. */
struct stats_blocks {
    size_t n;           /* values of the series */
    uint64_t seed;      /* draws are the same for the same seed and stream */
    const char *stream; /* of rng.h */
    void *ctx;
    /* The statistic of one draw of blocks of `length` values. */
    int (*draw)(void *ctx, struct rng *rng, size_t length, double *out);
};
/* The least length of the blocks of a series of n values; 0: too few to draw blocks of them. */
size_t stats_block_length(size_t n);
/* Half of the interval of the statistic, and the length of the blocks, longer where draws show
 * that values depend on those before. It holds the truth in 94 % and more of series of 90 values
 * and more whose neighbours correlate by up to 0.8, of 30 values in 87 %
 * (tests/base/test_stats_blocks.c). NaN: the series is too short, or a draw had no value, so that
 * the interval has no end. The error is that of `draw`. */
MUST int stats_blocks_half95(double *half, size_t *length, const struct stats_blocks *b);

#endif
