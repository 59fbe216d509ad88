/* kv/cluster.h - several devices that serve with the same buckets. Pure functions.
 *
 * Every device gets the same bounds under the same epoch, so that a request's bucket does not
 * depend on the device that it is sent to. What one device could not hold is not promised:
 * the longest sequence is that of the smallest device. A request goes where the larger of
 * two shares, of the device's compute and of its memory, is smallest.
 * Paper: ODMA 3.1, 3.5.   Threads: stateless. */
#ifndef KV_CLUSTER_H
#define KV_CLUSTER_H

#include "kv/buckets.h"

struct kv_device {
    int64_t arena_tok, reserved_tok; /* of its allocator (struct kv_alloc_stat) */
    double load, capacity; /* work that it has and that it can have, in one unit */
};

/* The tokens that every device's arena holds, so the longest sequence that any of them can
 * serve; 0 if n is. */
int64_t kv_cluster_budget(const struct kv_device *d, int n);
/* The bounds for all devices: those learned, without bounds above the budget. */
void kv_cluster_bounds(struct kv_bounds *out, const struct kv_bounds *learned,
                       const struct kv_device *d, int n);
/* The device for a sequence that takes size_tok of memory and adds `work`; the first of equal
 * ones; -1: none has the memory now. */
int kv_cluster_choose(const struct kv_device *d, int n, int64_t size_tok, double work);

#endif
