/* kv/classes.h - contiguous blocks of few sizes, in superblocks: what s3 and odma have in
 * common.
 *
 * The arena is a row of superblocks of m large blocks each. A superblock is empty or belongs
 * to one size class k, which divides it into k equal blocks. When its last block is released
 * it is empty again and any class may take it, so that sizes follow the buckets' bounds while
 * no block in use ever moves. A block for n tokens comes from the class of the smallest
 * blocks that hold n: from a superblock of this class, else from an empty one. It never comes
 * from a class of larger blocks: under load these superblocks would be filled again and again by
 * shorter sequences, and never become empty. A block may be extended by free right neighbours.
 *
 * Reserving, extending by one block and releasing take constant time: each class has a list
 * of its superblocks with free blocks, and each superblock a list of its free blocks.
 * Paper: ODMA 3.5.   Threads: one owner. */
#ifndef KV_CLASSES_H
#define KV_CLASSES_H

#include "kv/alloc.h"

#define KV_CLASSES_MAX 256 /* blocks of a superblock at most, so number of classes */

struct kv_classes;

/* *out is the caller's; NULL on error. Errors as of kv_alloc.open. */
MUST int kv_classes_open(struct kv_classes **out, const struct kv_arena *a);
void kv_classes_close(struct kv_classes **c);

/* Reserve a block of at least n_tok tokens, n_tok <= max_tok. keep: while a sequence could
 * still outgrow its block, memory for this number of large blocks stays free. */
MUST int kv_classes_reserve(struct kv_classes *c, int64_t n_tok, int64_t keep,
                            struct kv_extent *out);
/* Let *e hold n_tok tokens where it is. false: a right neighbour is in use. */
bool kv_classes_extend(struct kv_classes *c, struct kv_extent *e, int64_t n_tok);
/* Reserve a block of at least n_tok tokens for *e and leave the one that it has. */
MUST int kv_classes_move(struct kv_classes *c, struct kv_extent *e, int64_t used_tok,
                         int64_t n_tok, struct kv_move *m);
void kv_classes_release(struct kv_classes *c, int64_t id);
void kv_classes_stat(const struct kv_classes *c, struct kv_alloc_stat *out);

#endif
