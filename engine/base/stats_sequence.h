/* base/stats_sequence.h - a 95 % confidence sequence: intervals of a mean that all hold it at once,
 * so that one may check after every value and end when the interval is narrow enough. An interval
 * for a number of values that was fixed before, such as Student's, would then be too narrow: some
 * of many checks go wrong.
 *
 * Which: Robbins' mixture of normal distributions, for a variance that is not known. With t
 * from n values, the likelihood ratio of "the mean is d deviations away, d normal with
 * variance g" against "d is 0" is
 *   (1 + n g)^(-1/2) ((1 + t^2 / (n - 1)) / (1 + t^2 / ((n - 1) (1 + n g))))^(n / 2),
 * which is a martingale of mean 1 where d is 0: it ever reaches 20 with a probability of at most
 * 1/20 (Ville). The interval holds the means for which it is below 20.
 * Why: it needs no bound of the values (an empirical Bernstein bound does, and a time has none),
 * no guess of the variance, and only few values. What it assumes: values that are independent,
 * with one mean and normal; symmetric ones with heavy tails only make it wider than it need be.
 * Logarithms of ratios of runs in turn are nearly so.
 * H. Robbins, "Statistical methods related to the law of the iterated logarithm", Ann. Math.
 * Statist. 41 (1970); T. L. Lai, "On confidence sequences", Ann. Statist. 4 (1976); H. Wang and
 * A. Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown
 * variance" (2023).   Threads: any. */
#ifndef BASE_STATS_SEQUENCE_H
#define BASE_STATS_SEQUENCE_H

#include <stddef.h>

/* No interval of fewer values is finite. */
#define STATS_SEQUENCE_LEAST 4

/* Half of the interval of the mean of the first n values. INFINITY: n < STATS_SEQUENCE_LEAST, so
 * that no mean can be ruled out yet. NaN: a value is not finite. */
double stats_sequence_half95(const double *x, size_t n);

#endif
