/* kv/large.h - large blocks kept in reserve, the paper's insurance pool: only a sequence of the
 * large bucket gets one, so that others cannot use up what those that outgrow their memory need.
 *
 * The pool is the end of an arena. The paper does not print its size, nor what happens where all
 * its blocks are in use; the callers then look in the rest of the arena, since an empty superblock
 * may become a large block. Taking and giving back take constant time.
 * Paper: ODMA 3.4.   Threads: one owner. */
#ifndef KV_LARGE_H
#define KV_LARGE_H

#include "kv/alloc.h"

struct kv_large;

/* A pool of a->large_frac of the sequences of max_tok that the arena holds, rounded up; at least
 * one of them stays outside. With a share of 0 there are no blocks, and nothing is taken.
 *   *out      the caller's; NULL on error
 *   *rest     *a without the pool, for what divides the rest
 *   first_id  blocks are named first_id, first_id + 1, ...; those of the rest have smaller names
 * ERR_ARG: a share outside of [0, 1). */
MUST int kv_large_open(struct kv_large **out, struct kv_arena *rest,
                       const struct kv_arena *a, int64_t first_id);
void kv_large_close(struct kv_large **l);

/* false: no block is free, and *out is as before. */
bool kv_large_take(struct kv_large *l, struct kv_extent *out);
/* false: the block is not of this pool. */
bool kv_large_give_back(struct kv_large *l, int64_t id);
/* Add the pool to what *out says of the rest. */
void kv_large_stat(const struct kv_large *l, struct kv_alloc_stat *out);

/* Whether a sequence is of the large bucket: its prediction is not trusted, or is above all bounds,
 * or there are none. */
bool kv_large_wanted(const struct kv_bounds *b, const struct kv_need *need);

#endif
