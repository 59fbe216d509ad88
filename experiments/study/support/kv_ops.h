/* experiments/study/support/kv_ops.h - the operations of an allocator of keys and values, for
 * sequences of random lengths, without the steps between them.   Threads: one. */
#ifndef STUDY_KV_OPS_H
#define STUDY_KV_OPS_H

#include "base/rng.h"
#include "kv/alloc.h"
#include "kv/buckets.h"

struct study_kv_ops {
    const struct kv_alloc *alloc;
    void *state;
    struct kv_bounds bounds;
    struct study_kv_ops_seq *seqs; /* [n_seqs] */
    int64_t n_seqs, max_tok, next; /* next: the sequence whose turn it is */
    int64_t n_ops, n_tok; /* operations, and tokens that sequences got meanwhile */
    struct rng rng;
};

/* n_seqs sequences of at most max_tok tokens, a multiple of 16, in an arena with room for all
 * of them. study_kv_ops_close() also after an error. ERR_ARG, ERR_NOMEM as of
 * kv_alloc_open(). */
MUST int study_kv_ops_open(struct study_kv_ops *k, const struct kv_alloc *alloc,
                           int64_t n_seqs, int64_t max_tok, int64_t seed);
/* Each of n sequences in turn gets tokens until it needs an operation: it grows, or it has all
 * its tokens, is released, and another is reserved. */
MUST int study_kv_ops_run(struct study_kv_ops *k, int64_t n);
void study_kv_ops_close(struct study_kv_ops *k); /* twice is fine */

#endif
