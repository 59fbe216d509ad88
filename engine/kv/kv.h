/* kv/kv.h - the keys and values of live sequences.
 *
 * A pool has a fixed size and never grows after kv_pool_open(), so running out is
 * reported to the scheduler (ERR_NOMEM) and never crashes a step. A live sequence owns one slot
 * laid out
 *     [layer][kv_head][.. key 2, key 1, key 0 | value 0, value 1, value 2 ..]
 * where the key or the value of a token in a head is a vector of vec_bytes bytes, so that a rank
 * owns a range of heads, and a change of plan moves nothing. Where the allocator
 * is `paged`, a slot is a table of blocks of block_tok tokens, and each block is laid out so.
 * Where slots are of several sizes each head has its own part of the pool, and each slot has
 * the same tokens of every part: it is laid out
 *     [kv_head][layer][.. key 1, key 0 | value 0, value 1 ..]
 * with the other slots of the head between two heads. So in every pool a head has its pages,
 * which can be bound to a memory node.
 * Keys grow downwards and values upwards, so that what a sequence has so far is one run in each
 * head. With a gap between keys and values there would be two, and hardware prefetches some
 * kilobytes beyond the end of each, where no token is yet: on Zen 4 one run, of 145 of 240
 * tokens, arrives 1.1 to 1.3 times as fast as two.
 * How slots are chosen is a plug-in: one file in kv/alloc/.   Paper: ODMA 3.4, 3.5.
 * Threads: one owner per pool; stat from any thread. */
#ifndef KV_KV_H
#define KV_KV_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kv/alloc.h"

struct kv_shape {
    int n_layers, n_kv_heads;
    size_t vec_bytes; /* of one key or value (kern_kv_bytes()) */
};

/* One sequence's memory; plain data, lent by the pool until kv_release(). */
struct kv_slot {
    void *base;      /* its memory; with `blocks` the first byte of all blocks */
    int64_t n_tok;   /* tokens reserved: these count towards the pool's limit */
    int64_t cap_tok; /* tokens it can hold, n_tok at least */
    /* Bytes of the keys or of the values in a head of a layer: of cap_tok tokens, with `blocks` of
     * block_tok. */
    size_t run_bytes;
    size_t head_stride, layer_stride; /* to the same of the next head or layer */
    int64_t slot;                     /* the allocator's number of it */
    int64_t first_tok;                /* where it begins in the allocator's arena */
    /* NULL: contiguous. Else [cap_tok / block_tok] numbers of blocks: its tokens from i *
     * block_tok on are in block blocks[i], which begins block_bytes * blocks[i] after base. */
    const int32_t *blocks;
    int64_t block_tok; /* a power of two */
    size_t block_bytes;
};

/* First byte of the memory of a head in a layer, run_bytes for keys and as many for values; with
 * a table of blocks in block 0, whether the sequence has it or not. */
static inline void *kv_head_at(const struct kv_slot *r, int layer, int kv_head)
{
    return (char *)r->base + (size_t)layer * r->layer_stride +
           (size_t)kv_head * r->head_stride;
}

/* The first value of a head in a layer, which follows the first key; with a table of blocks in
 * block 0. */
static inline char *kv_values_at(const struct kv_slot *r, int layer, int kv_head)
{
    return (char *)kv_head_at(r, layer, kv_head) + r->run_bytes;
}

/* The key (v = 0) or value (v = 1) of token `tok`. vec_bytes: of one. */
static inline void *kv_token_at(const struct kv_slot *r, int layer, int kv_head, int v,
                                int64_t tok, size_t vec_bytes)
{
    char *values = kv_values_at(r, layer, kv_head);

    if (r->blocks) {
        values += (size_t)r->blocks[tok / r->block_tok] * r->block_bytes;
        tok %= r->block_tok;
    }
    return v ? values + (size_t)tok * vec_bytes : values - (size_t)(tok + 1) * vec_bytes;
}

/* Blocks of several sizes begin and end at multiples of this number of tokens, so that there
 * are few sizes and no two blocks share a cache line. ODMA 3.5. */
#define KV_ALIGN_TOK 16

struct kv_pool;

struct kv_pool_opts {
    const char *alloc;   /* name of an allocator plug-in; NULL: "static" */
    size_t budget_bytes; /* what the pool takes */
    int64_t max_tok;     /* the longest sequence that will be asked for */
    /* Where the allocator is `paged`: tokens of a block, a power of two from 16 to 512, and
     * sequences that can have memory at once. */
    int64_t block_tok, max_seqs;
    bool shared; /* in memory that processes made by fork() afterwards share, or map */
    double large_frac; /* odma, odma_paper: see struct kv_arena */
    /* odma, odma_paper: the present bounds, lent while the pool is open; NULL: there are none. */
    const struct kv_bounds *bounds;
};

/* Open a pool. The first touch decides the memory node of a page.
 *   out        owned by the caller, kv_pool_close(); NULL on error
 * ERR_ARG: a dimension is 0, or an option out of range. ERR_NOTFOUND: no such allocator (names
 * the nearest). ERR_NOMEM: the budget is too small for one sequence of max_tok, or the system
 * has no more memory. */
MUST int kv_pool_open(struct kv_pool **out, const struct kv_shape *shape,
                      const struct kv_pool_opts *o);
void kv_pool_close(struct kv_pool **p);

/* The budget in which n_seqs sequences of o->max_tok tokens have memory at once; 0 < n_seqs.
 * o->budget_bytes is not read. ERR_LIMIT: more than the system can address. */
MUST int kv_pool_bytes(size_t *out, const struct kv_shape *shape,
                       const struct kv_pool_opts *o, int64_t n_seqs);

/* Limit the total number of tokens that slots reserve. A pool opens with the limit of its
 * allocator only. Called while no slot is reserved. */
void kv_pool_limit(struct kv_pool *p, int64_t n_tok);

/* The tokens that a slot for this need counts as (kv_alloc_need_tok()). */
int64_t kv_need_tok(const struct kv_pool *p, const struct kv_need *need);
/* Reserve a slot, which counts as kv_need_tok() tokens.
 * ERR_NOMEM: none free now (try again after a release); ERR_LIMIT: it is longer than max_tok. */
MUST int kv_reserve(struct kv_pool *p, const struct kv_need *need, struct kv_slot *out);
/* The bucket that a slot for this need comes from; 0 where the allocator has none. */
int kv_bucket(const struct kv_pool *p, const struct kv_need *need);
/* Let the sequence, of which the first used_tok tokens are there, reach `n_tok` tokens: OK
 * where it may already. Beyond cap_tok it gets more or other memory; if so, the keys and
 * values that are there may be moved, so it must be called between two steps. On error *r
 * is as before. ERR_NOMEM, ERR_LIMIT: as above. */
MUST int kv_grow(struct kv_pool *p, struct kv_slot *r, int64_t used_tok, int64_t n_tok);
void kv_release(struct kv_pool *p, struct kv_slot *r); /* zeroes *r */

/* Touch part `i` of `n` of the pool's pages. Each thread of a team calls it once at open, so
 * that the first requests do not pay for zeroing pages and a lack of memory shows early. */
void kv_pool_touch(struct kv_pool *p, int i, int n);

/* The mapping that holds the pool, to query or bind the NUMA nodes of its pages. */
void kv_pool_memory(const struct kv_pool *p, void **base, size_t *bytes);
/* The file that it maps from its first byte on, lent; -1: memory that is not shared. */
int kv_pool_fd(const struct kv_pool *p);
/* Call fn with slots that together are all that sequences can have: the slots of the allocator
 * `static`, the blocks of `paged`, else one slot of all tokens. */
void kv_pool_each(const struct kv_pool *p, void (*fn)(void *ctx, const struct kv_slot *r),
                  void *ctx);

/* Bytes one token needs over all layers and heads. */
size_t kv_token_bytes(const struct kv_shape *s);

struct kv_stat {
    size_t pool_bytes, reserved_bytes;
    int64_t pool_tok;                /* tokens that the pool has memory for */
    int64_t limit_tok, reserved_tok; /* by kv_pool_limit(): INT64_MAX without a limit */
    int64_t n_live, n_reserved_total, n_refused_total;
    /* Sequences that got other memory, those that got more of what they had, and the bytes
     * copied for both: in a slot that gets longer every run but the first of a head moves. */
    int64_t n_moved_total, n_extended_total, migrated_bytes_total;
    /* Calls of the allocator and their time, without the copies. */
    int64_t n_alloc_total, alloc_ns_total, migrate_ns_total;
};
void kv_pool_stat(const struct kv_pool *p, struct kv_stat *out);

#endif
