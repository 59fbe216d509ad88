/* base/series.h - a series of any length in a fixed number of points: each is the mean of
 * equally many consecutive values. When the points are used up, neighbours are merged. A
 * zeroed struct is an empty series.   Threads: one per struct. */
#ifndef BASE_SERIES_H
#define BASE_SERIES_H

#include <stdint.h>

#define SERIES_POINTS 256

struct series {
    int n;        /* points */
    int64_t each; /* values of a point; the last one may have fewer: */
    int64_t in_last;
    double mean[SERIES_POINTS];
};

void series_add(struct series *s, double x);
/* Merges neighbours until there are at most `most` points, at least 1. */
void series_merge(struct series *s, int most);

#endif
