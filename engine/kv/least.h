/* kv/least.h - bounds of buckets with which given lengths take the least memory.
 *
 * Quantiles lie close together where most lengths are. Most memory is where lengths are long,
 * and there few bounds are left. These bounds minimise the sum of each length rounded up to
 * its bound. They are found by dynamic programming over the lengths, from the shortest up; since
 * the best last bound before a length never decreases with it, each bound takes n log n steps.
 * No part of the paper.   Threads: one owner. */
#ifndef KV_LEAST_H
#define KV_LEAST_H

#include <stdint.h>

#include "base/err.h"

struct kv_least;

/* For at most n_bounds bounds of n_bins bins. *out is the caller's; NULL on error. */
MUST int kv_least_open(struct kv_least **out, int64_t n_bins, int n_bounds);
void kv_least_close(struct kv_least **l);
/* The bins that end a bucket, ascending: how many. The last is the last that has weight.
 *   bins    [n_bounds] out
 *   weight  [n_bins] requests of each bin, whose length is its number + 1; not all 0 */
int kv_least_find(struct kv_least *l, int64_t *bins, const int64_t *weight);

#endif
