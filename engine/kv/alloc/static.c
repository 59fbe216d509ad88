/* Equal slots of max_tok tokens: nothing to search, nothing to fragment, and the waste
 * that the other allocators are measured against. */
#include <assert.h>

#include "base/mem.h"
#include "kv/alloc.h"

struct slots {
    int64_t max_tok, n;
    int64_t n_free;
    int64_t n_visited;
    int64_t free[]; /* a stack: the slot last given back is the warmest */
};

static int slots_open(void **state, const struct kv_arena *a)
{
    int64_t n = a->n_tok / a->max_tok;
    struct slots *s = mem_new(MEM_KV, 1, sizeof(*s) + (size_t)n * sizeof(s->free[0]));

    if (!s)
        return ERR_NOMEM;
    s->max_tok = a->max_tok;
    s->n = s->n_free = n;
    for (int64_t i = 0; i < n; i++)
        s->free[i] = n - 1 - i;
    *state = s;
    return OK;
}

static void slots_close(void *state)
{
    mem_free(state);
}

static int slots_reserve(void *state, const struct kv_need *need, struct kv_extent *out)
{
    struct slots *s = state;

    TRY(kv_need_check(need, s->max_tok));
    if (s->n_free == 0)
        return err_set(ERR_NOMEM, "kv: no free slot: all %lld are in use",
                       (long long)s->n);
    s->n_visited++;
    out->id = s->free[--s->n_free];
    out->first_tok = out->id * s->max_tok;
    out->cap_tok = s->max_tok;
    out->blocks = NULL;
    return OK;
}

static int slots_grow(void *state, struct kv_extent *e, int64_t used_tok,
                      int64_t want_tok, struct kv_move *m)
{
    const struct slots *s = state;

    (void)e, (void)used_tok, (void)m; /* every slot holds the longest sequence */
    return kv_want_check(want_tok, s->max_tok);
}

static void slots_release(void *state, int64_t id)
{
    struct slots *s = state;

    assert(s->n_free < s->n);
    s->n_visited++;
    s->free[s->n_free++] = id;
}

static void slots_stat(const void *state, struct kv_alloc_stat *out)
{
    const struct slots *s = state;

    out->arena_tok = s->n * s->max_tok;
    out->n_live = s->n - s->n_free;
    out->reserved_tok = out->n_live * s->max_tok;
    out->n_visited = s->n_visited;
}

const struct kv_alloc kv_alloc_static = {
    .name = "static",
    .help = "a slot of the longest sequence each",
    .open = slots_open,
    .close = slots_close,
    .reserve = slots_reserve,
    .grow = slots_grow,
    .release = slots_release,
    .stat = slots_stat,
};
