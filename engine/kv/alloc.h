/* kv/alloc.h - what an allocator plug-in in kv/alloc/ provides.
 *
 * It divides [0, pool_bytes) into slots; it never sees the memory itself. One file ends
 * in one `const struct kv_alloc kv_alloc_<stem>`. */
#ifndef KV_ALLOC_H
#define KV_ALLOC_H

#include "kv/kv.h"

struct kv_alloc {
    const char *name;
    /* token_bytes: of one token; max_tok: of the longest sequence. */
    int (*open)(void **state, size_t pool_bytes, size_t token_bytes, int64_t max_tok);
    void (*close)(void *state);
    /* Choose a slot for n_tok tokens: its offset, the tokens it holds, and a slot
     * number that release() gets back. ERR_NOMEM when none is free now. */
    int (*reserve)(void *state, int64_t n_tok, size_t *offset, int64_t *cap_tok,
                   int64_t *slot);
    void (*release)(void *state, int64_t slot);
};

extern const struct kv_alloc *const kv_allocs[]; /* NULL-terminated, written by make */

#endif
