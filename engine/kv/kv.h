/* kv/kv.h - the keys and values of live sequences.
 *
 * A pool has a fixed size and never grows after kv_pool_open(), so running out is
 * reported to the scheduler (ERR_NOMEM) and never crashes a step. A live sequence owns one slot
 * laid out
 *     [layer][kv_head][K|V][token][head_dim]
 * so that a rank owns a range of heads, and a change of plan moves nothing.
 * How slots are chosen is a plug-in: one file in kv/alloc/.   Paper: ODMA 3.5.
 * Threads: one owner per pool; stat from any thread. */
#ifndef KV_KV_H
#define KV_KV_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct kv_shape {
    int n_layers, n_kv_heads, head_dim;
    int elem_bytes; /* 4: f32, 2: bf16 */
};

/* One sequence's memory; plain data, lent by the pool until kv_release(). */
struct kv_slot {
    void *base;
    int64_t n_tok;     /* tokens reserved: these count towards the pool's limit */
    int64_t cap_tok;   /* tokens it can hold, n_tok at least */
    size_t head_bytes; /* of one [K or V][token][head_dim] run = cap_tok*head_dim*elem */
    int n_kv_heads;
    int64_t slot;      /* the allocator's number of it */
    int64_t first_tok; /* where it begins in the allocator's arena */
};

/* First byte of the keys (v = 0) or values (v = 1) of a head in a layer. */
static inline void *kv_at(const struct kv_slot *r, int layer, int kv_head, int v)
{
    size_t i = ((size_t)layer * r->n_kv_heads + kv_head) * 2 + (size_t)v;
    return (char *)r->base + i * r->head_bytes;
}

struct kv_pool;

/* Open a pool of at most `budget_bytes` on NUMA node `node` (-1: first touch decides).
 *   out        owned by the caller, kv_pool_close(); NULL on error
 *   alloc      name of an allocator plug-in; NULL means "static"
 *   max_tok    the longest sequence that will be asked for
 * ERR_ARG: a dimension is 0. ERR_NOTFOUND: no such allocator (names the nearest).
 * ERR_UNSUPPORTED: an allocator of block tables.
 * ERR_NOMEM: the budget is too small for one sequence of max_tok, or the system has no
 * more memory. */
MUST int kv_pool_open(struct kv_pool **out, const char *alloc,
                      const struct kv_shape *shape, size_t budget_bytes, int64_t max_tok,
                      int node);
/* The same in memory that processes made by fork() afterwards share. */
MUST int kv_pool_open_shared(struct kv_pool **out, const char *alloc,
                             const struct kv_shape *shape, size_t budget_bytes,
                             int64_t max_tok);
void kv_pool_close(struct kv_pool **p);

/* Limit the total number of tokens that slots reserve. A pool opens with the limit of its
 * allocator only. Called while no slot is reserved. */
void kv_pool_limit(struct kv_pool *p, int64_t n_tok);

/* Reserve a slot for a sequence that may reach `n_tok` tokens.
 * ERR_NOMEM: none free now (try again after a release); ERR_LIMIT: n_tok > max_tok. */
MUST int kv_reserve(struct kv_pool *p, int64_t n_tok, struct kv_slot *out);
/* Let the sequence reach `n_tok` tokens: OK where it may already. Beyond cap_tok it gets other
 * memory and its keys and values are copied, so it must be called between two steps. On error
 * *r is as before. ERR_NOMEM, ERR_LIMIT: as above. */
MUST int kv_grow(struct kv_pool *p, struct kv_slot *r, int64_t n_tok);
void kv_release(struct kv_pool *p, struct kv_slot *r); /* zeroes *r */

/* Touch part `i` of `n` of the pool's pages. Each thread of a team calls it once at open, so
 * that the first requests do not pay for zeroing pages and a lack of memory shows early. */
void kv_pool_touch(struct kv_pool *p, int i, int n);

/* The mapping that holds the pool, to query or bind the NUMA nodes of its pages. */
void kv_pool_memory(const struct kv_pool *p, void **base, size_t *bytes);
/* Call fn with every slot that sequences of max_tok tokens can hold at once. Statistics do
 * not change. ERR_STATE: a slot is in use. ERR_NOMEM. */
MUST int kv_pool_each(struct kv_pool *p, void (*fn)(void *ctx, const struct kv_slot *r),
                      void *ctx);

/* Bytes one token needs over all layers and heads. */
size_t kv_token_bytes(const struct kv_shape *s);

struct kv_stat {
    size_t pool_bytes, reserved_bytes;
    int64_t limit_tok, reserved_tok; /* by kv_pool_limit(): INT64_MAX without a limit */
    int64_t n_live, n_reserved_total, n_refused_total;
};
void kv_pool_stat(const struct kv_pool *p, struct kv_stat *out);

#endif
