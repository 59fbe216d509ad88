/* step/ahead.h - which keys and values a thread reads next, so that it can prefetch them.
 *
 * Decode of many sequences multiplies for as long as it computes and then attends for as long
 * as memory takes to deliver keys and values. While the products of a layer run, memory has time
 * to deliver what the next layer's attention reads. It is asked for evenly over all of them: the
 * products read weights as well, and several bytes at once would have to wait for each other.
 *   Threads: one owner. */
#ifndef STEP_AHEAD_H
#define STEP_AHEAD_H

#include "model/model.h"

struct model_ahead {
    const struct model_chunk *chunks; /* one token each; lent */
    int n_chunks, layer;
    int head_lo, head_hi; /* the thread's heads of keys and values */
    int64_t row_bytes;    /* of one token's key */
    int64_t left;         /* bytes still to prefetch; 0: none */
    double rate;          /* bytes to prefetch for each that is multiplied, at most 1 */
    double due;           /* bytes that `rate` allows now */
    int chunk, head;      /* the run begins with token `tok` of this head, and */
    int64_t tok, at;      /* the next part at byte `at` of it */
};

/* Walk through what attention reads, and what it writes first, in layer `layer`, chunk by chunk,
 * head by head, and in blocks block by block. The walk ends after `most` bytes and is spread
 * evenly over the `meanwhile` bytes of weights that the caller multiplies; where it has more
 * bytes than that, it goes byte for byte with them. */
void model_ahead_begin(struct model_ahead *a, const struct model_chunk *chunks,
                       int n_chunks, int layer, int head_lo, int head_hi,
                       int64_t row_bytes, int64_t most, int64_t meanwhile);
/* Where the next part begins, while the caller multiplies *bytes of weights, and in *bytes how
 * many it has: at most as many, and none beyond its run or its block. NULL: at the end, or not
 * yet due. `ctx` is the walk. */
const void *model_ahead_next(void *ctx, int64_t *bytes);

#endif
