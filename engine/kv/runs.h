/* kv/runs.h - contiguous runs of an arena, of any aligned length: what s3 and odma have in common.
 *
 * The arena is a row of units of align_tok tokens. Sequences have runs of it, and what is
 * between them forms free runs, as long as they can be: a released run joins its free
 * neighbours. A sequence gets the beginning of the shortest free run that holds it, and may
 * grow into the free run on its right. No run in use ever moves.
 *
 * Reserving, growing and releasing take constant time: free runs of each length are in a list, and
 * a tree of bits finds the next length that has one.
 *
 * The paper names size classes, and blocks returned to their own class (alloc/odma_paper.c); here
 * the classes are the buckets' bounds as they are. Dividing superblocks into equal blocks of a
 * class was tried and wastes what bounds are learned for: a bound of two thirds of the longest
 * sequence becomes a whole one, and each class leaves one superblock partly used.
 * Paper: ODMA 3.5.   Threads: one owner. */
#ifndef KV_RUNS_H
#define KV_RUNS_H

#include "kv/alloc.h"

struct kv_runs;

/* *out is the caller's; NULL on error. Errors as of kv_alloc.open. */
MUST int kv_runs_open(struct kv_runs **out, const struct kv_arena *a);
void kv_runs_close(struct kv_runs **r);

/* Reserve a run of at least n_tok tokens, n_tok <= max_tok. */
MUST int kv_runs_reserve(struct kv_runs *r, int64_t n_tok, struct kv_extent *out);
/* Let *e hold n_tok tokens where it is, and up to most_tok as far as there is space. false: what
 * is free on its right is too short. */
bool kv_runs_extend(struct kv_runs *r, struct kv_extent *e, int64_t n_tok,
                    int64_t most_tok);
/* Reserve a run of at least n_tok tokens for *e and leave the one that it has. */
MUST int kv_runs_move(struct kv_runs *r, struct kv_extent *e, int64_t used_tok,
                      int64_t n_tok, struct kv_move *m);
void kv_runs_release(struct kv_runs *r, int64_t id);
void kv_runs_stat(const struct kv_runs *r, struct kv_alloc_stat *out);

#endif
