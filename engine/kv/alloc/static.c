/* Equal slots of max_tok tokens: nothing to search, nothing to fragment, and the waste
 * that the other allocators are measured against. */
#include "base/mem.h"
#include "kv/alloc.h"

struct slots {
    size_t slot_bytes;
    int64_t max_tok;
    int64_t n_free;
    int64_t free[]; /* a stack: the slot last given back is the warmest */
};

static int slots_open(void **state, size_t pool_bytes, size_t token_bytes,
                      int64_t max_tok)
{
    size_t slot_bytes;
    struct slots *s;
    int64_t n;

    *state = NULL;
    /* Whole cache lines, so that two sequences never share one. */
    if (__builtin_mul_overflow(token_bytes, (size_t)max_tok, &slot_bytes) ||
        __builtin_add_overflow(slot_bytes, 63, &slot_bytes))
        return err_set(ERR_LIMIT, "kv: %lld tokens of %zu bytes overflow",
                       (long long)max_tok, token_bytes);
    slot_bytes &= ~(size_t)63;
    n = (int64_t)(pool_bytes / slot_bytes);
    if (n < 1)
        return err_set(
            ERR_NOMEM,
            "kv pool of %zu bytes holds no sequence of %lld tokens (%zu bytes)",
            pool_bytes, (long long)max_tok, slot_bytes);
    s = mem_new(MEM_KV, 1, sizeof(*s) + (size_t)n * sizeof(s->free[0]));
    if (!s)
        return ERR_NOMEM;
    s->slot_bytes = slot_bytes;
    s->max_tok = max_tok;
    s->n_free = n;
    for (int64_t i = 0; i < n; i++)
        s->free[i] = n - 1 - i;
    *state = s;
    return OK;
}

static void slots_close(void *state)
{
    mem_free(state);
}

static int slots_reserve(void *state, int64_t n_tok, size_t *offset, int64_t *cap_tok,
                         int64_t *slot)
{
    struct slots *s = state;

    (void)n_tok; /* every slot holds the longest sequence */
    if (s->n_free == 0)
        return err_set(ERR_NOMEM, "kv: no free slot");
    *slot = s->free[--s->n_free];
    *offset = (size_t)*slot * s->slot_bytes;
    *cap_tok = s->max_tok;
    return OK;
}

static void slots_release(void *state, int64_t slot)
{
    struct slots *s = state;

    s->free[s->n_free++] = slot;
}

const struct kv_alloc kv_alloc_static = {
    .name = "static",
    .open = slots_open,
    .close = slots_close,
    .reserve = slots_reserve,
    .release = slots_release,
};
