/* base/stats_nested.h - variance components of nested groups: how much of the variance of numbers
 * is between kinds, between machines of a kind, between days of a machine, and so on.
 *
 * The model: a number is the mean of its series, plus a random effect of each group that it is in,
 * each level with a variance of its own, plus a residual. Groups may have any sizes. By the method
 * of moments (Henderson's first): the sums of squares between the groups of each level have
 * expectations that are linear in the components, exactly, whatever the distributions; sums of
 * several series, each with a mean of its own, are solved together. A component may come out below
 * 0, as an unbiased estimate does where there is none.   Threads: one owner. */
#ifndef BASE_STATS_NESTED_H
#define BASE_STATS_NESTED_H

#include <stddef.h>

#define STATS_NESTED_LEVELS 4 /* at most, without the residual */

struct stats_nested { /* all zero but n_levels: empty */
    int n_levels;
    /* Row l: what is between the groups of level l within those of the level above it; the last
     * row within the finest groups. square[l] is expected to be the sum of weight[l][k] times
     * component k. */
    double square[STATS_NESTED_LEVELS + 1];
    double weight[STATS_NESTED_LEVELS + 1][STATS_NESTED_LEVELS + 1];
};

/* Add a series.   y [n], group [n][n_levels]: numbers of the groups, the coarsest first. Groups of
 * equal numbers in different coarser groups are different. Sorted: the numbers of a group are
 * next to each other. */
void stats_nested_add(struct stats_nested *s, const double *y, const int *group,
                      size_t n);
/* Add all that was added to `from`, with each row's own component counted once: of several sets of
 * series, all of which are added so, none decides by its size. */
void stats_nested_add_evenly(struct stats_nested *s, const struct stats_nested *from);
/* component [n_levels + 1], the residual last. NaN: no series has two groups of that level in one
 * of the level above; what is between them is then in the component of that level. */
void stats_nested_solve(const struct stats_nested *s, double *component);

#endif
