#include "kv/large.h"

#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "kv/buckets.h"

struct kv_large {
    int64_t max_tok, first_tok, first_id;
    int64_t n, n_free, n_visited;
    int64_t free[]; /* a stack of blocks */
};

int kv_large_open(struct kv_large **out, struct kv_arena *rest, const struct kv_arena *a,
                  int64_t first_id)
{
    int64_t all = a->n_tok / a->max_tok, n;
    struct kv_large *l;

    *out = NULL;
    if (!(a->large_frac >= 0 && a->large_frac < 1))
        return err_set(ERR_ARG,
                       "kv: a share of %g for large blocks: expected 0 or more, below 1",
                       a->large_frac);
    n = (int64_t)ceil(a->large_frac * (double)all);
    n = n < all ? n : all - 1;
    l = mem_new(MEM_KV, 1, sizeof(*l) + (size_t)n * sizeof(l->free[0]));
    if (!l)
        return ERR_NOMEM;
    *rest = *a;
    rest->n_tok = a->n_tok / a->align_tok * a->align_tok - n * a->max_tok;
    *l = (struct kv_large){.max_tok = a->max_tok,
                           .first_tok = rest->n_tok,
                           .first_id = first_id,
                           .n = n,
                           .n_free = n};
    for (int64_t i = 0; i < n; i++)
        l->free[i] = n - 1 - i;
    *out = l;
    return OK;
}

void kv_large_close(struct kv_large **l)
{
    mem_free(*l);
    *l = NULL;
}

bool kv_large_take(struct kv_large *l, struct kv_extent *out)
{
    int64_t i;

    if (l->n_free == 0)
        return false;
    l->n_visited++;
    i = l->free[--l->n_free];
    *out = (struct kv_extent){.id = l->first_id + i,
                              .first_tok = l->first_tok + i * l->max_tok,
                              .cap_tok = l->max_tok};
    return true;
}

bool kv_large_give_back(struct kv_large *l, int64_t id)
{
    if (id < l->first_id)
        return false;
    assert(l->n_free < l->n);
    l->n_visited++;
    l->free[l->n_free++] = id - l->first_id;
    return true;
}

void kv_large_stat(const struct kv_large *l, struct kv_alloc_stat *out)
{
    int64_t n_live = l->n - l->n_free;

    out->arena_tok += l->n * l->max_tok;
    out->reserved_tok += n_live * l->max_tok;
    out->n_live += n_live;
    out->n_visited += l->n_visited;
}

bool kv_large_wanted(const struct kv_bounds *b, const struct kv_need *need)
{
    return !b || kv_bounds_bucket(b, need) == b->n;
}
