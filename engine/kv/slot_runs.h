/* kv/slot_runs.h - the bytes of a sequence's keys and values, whatever the layout of its slot.
 *
 * In a head of a layer the tokens [lo, hi) have a canonical order: keys from the last token to
 * the first, then values from the first to the last. Two slots of the same tokens have the same
 * bytes in this order, so that they can be compared, sent and received without naming a layout.
 * It is the order of addresses in a contiguous slot: from token 0 on that is one run. A table of n
 * blocks has at most 2 n runs.
 * Paper: Splitwise IV-C (only what is filled is sent).   Threads: any that owns the slots. */
#ifndef KV_SLOT_RUNS_H
#define KV_SLOT_RUNS_H

#include "kv/kv.h"

struct kv_run {
    char *at;
    size_t bytes;
};

/* Where a walk over the runs is. */
struct kv_slot_runs {
    const struct kv_slot *slot; /* lent */
    size_t vec_bytes;
    int layer, kv_head;
    int64_t lo, hi;
    int64_t next; /* vectors that were given: hi - lo keys, then as many values */
};

/* Begin a walk. 0 <= lo <= hi <= slot->cap_tok. vec_bytes: of one key or value. */
void kv_slot_runs(struct kv_slot_runs *r, const struct kv_slot *slot, size_t vec_bytes,
                  int layer, int kv_head, int64_t lo, int64_t hi);
/* The next run, as long as memory is contiguous. false: there are no more. */
bool kv_slot_runs_next(struct kv_slot_runs *r, struct kv_run *out);

/* Like memcpy(). */
typedef void (*kv_copy_fn)(void *to, const void *from, size_t bytes);
/* Copy tokens [lo, hi) of a layer, all heads, to the same tokens of another slot, whose pool may
 * be of another layout but is of the same shape. Writes no other byte. copy: NULL: memcpy(). */
void kv_slot_copy(const struct kv_slot *to, const struct kv_slot *from,
                  const struct kv_shape *shape, int layer, int64_t lo, int64_t hi,
                  kv_copy_fn copy);
/* hash_stream() of tokens [lo, hi) of a layer, head by head in canonical order: equal for equal
 * keys and values in any layout and any process. */
uint64_t kv_slot_hash(const struct kv_slot *slot, const struct kv_shape *shape, int layer,
                      int64_t lo, int64_t hi);

#endif
