#include "kv/kv.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "kv/alloc.h"

#define CACHE_LINE    64
#define FIXED_BUCKETS 10

/* One owner writes; the totals are atomic so that any thread may read them. */
struct kv_pool {
    const struct kv_alloc *alloc;
    void *state;
    void *base;
    size_t bytes, token_bytes;
    size_t large_bytes; /* of max_tok tokens, whole cache lines */
    struct kv_shape shape;
    int64_t max_tok, limit_tok;
    _Atomic size_t reserved_bytes;
    _Atomic int64_t reserved_tok, n_live, n_reserved_total, n_refused_total;
};

size_t kv_token_bytes(const struct kv_shape *s)
{
    return (size_t)s->n_layers * s->n_kv_heads * 2 * s->head_dim * s->elem_bytes;
}

static int check_shape(const struct kv_shape *s, int64_t max_tok)
{
    if (s->n_layers < 1 || s->n_kv_heads < 1 || s->head_dim < 1 || max_tok < 1)
        return err_set(
            ERR_ARG,
            "kv pool: layers %d, heads %d, head_dim %d, max_tok %lld: expected all >= 1",
            s->n_layers, s->n_kv_heads, s->head_dim, (long long)max_tok);
    if (s->elem_bytes != 2 && s->elem_bytes != 4)
        return err_set(ERR_ARG, "kv pool: elem_bytes: expected 2 or 4, found %d",
                       s->elem_bytes);
    return OK;
}

/* Tokens of the arena are counted in sequences of max_tok, each of which begins at a cache
 * line, so that no two of them share one. */
static int open_alloc(struct kv_pool *p)
{
    struct kv_arena a = {.max_tok = p->max_tok,
                         .align_tok = 1,
                         .superblock_larges = 1,
                         .n_fixed = FIXED_BUCKETS};

    if (p->alloc->paged)
        return err_set(ERR_UNSUPPORTED,
                       "kv allocator \"%s\": attention reads contiguous memory only",
                       p->alloc->name);
    if (__builtin_mul_overflow(p->token_bytes, (size_t)p->max_tok, &p->large_bytes) ||
        __builtin_add_overflow(p->large_bytes, CACHE_LINE - 1, &p->large_bytes))
        return err_set(ERR_LIMIT, "kv: %lld tokens of %zu bytes overflow",
                       (long long)p->max_tok, p->token_bytes);
    p->large_bytes &= ~(size_t)(CACHE_LINE - 1);
    if (p->bytes < p->large_bytes)
        return err_set(
            ERR_NOMEM,
            "kv pool of %zu bytes holds no sequence of %lld tokens (%zu bytes)", p->bytes,
            (long long)p->max_tok, p->large_bytes);
    a.n_tok = (int64_t)(p->bytes / p->large_bytes) * p->max_tok;
    return kv_alloc_open(p->alloc, &p->state, &a);
}

static int open_pool(struct kv_pool **out, const char *alloc,
                     const struct kv_shape *shape, size_t budget_bytes, int64_t max_tok)
{
    struct kv_pool *p;
    int rc = check_shape(shape, max_tok);

    *out = NULL;
    if (rc != OK)
        return rc;
    p = mem_new(MEM_KV, 1, sizeof(*p));
    if (!p)
        return ERR_NOMEM;
    p->shape = *shape;
    p->max_tok = max_tok;
    p->limit_tok = INT64_MAX;
    p->token_bytes = kv_token_bytes(shape);
    p->bytes = budget_bytes;
    rc = kv_alloc_find(alloc ? alloc : "static", &p->alloc);
    if (rc == OK)
        rc = open_alloc(p);
    if (rc == OK)
        *out = p;
    else
        kv_pool_close(&p);
    return rc;
}

/* `base` is the pool's now. */
static int take_base(struct kv_pool **p, void *base)
{
    (*p)->base = base;
    if (base)
        return OK;
    kv_pool_close(p);
    return ERR_NOMEM;
}

int kv_pool_open(struct kv_pool **out, const char *alloc, const struct kv_shape *shape,
                 size_t budget_bytes, int64_t max_tok, int node)
{
    int rc = open_pool(out, alloc, shape, budget_bytes, max_tok);

    return rc == OK ? take_base(out, mem_map(MEM_KV, budget_bytes, node)) : rc;
}

int kv_pool_open_shared(struct kv_pool **out, const char *alloc,
                        const struct kv_shape *shape, size_t budget_bytes,
                        int64_t max_tok)
{
    int rc = open_pool(out, alloc, shape, budget_bytes, max_tok);

    return rc == OK ? take_base(out, mem_map_shared(MEM_KV, budget_bytes)) : rc;
}

void kv_pool_close(struct kv_pool **pp)
{
    struct kv_pool *p = *pp;

    if (!p)
        return;
    if (p->state)
        p->alloc->close(p->state);
    if (p->base)
        mem_unmap(MEM_KV, p->base, p->bytes);
    mem_free(p);
    *pp = NULL;
}

void kv_pool_touch(struct kv_pool *p, int i, int n)
{
    size_t lo = p->bytes / (size_t)n * (size_t)i;
    size_t hi = i == n - 1 ? p->bytes : p->bytes / (size_t)n * (size_t)(i + 1);

    for (size_t at = lo; at < hi; at += 4096) /* the smallest page of any target */
        ((volatile char *)p->base)[at] = 0;
}

void kv_pool_memory(const struct kv_pool *p, void **base, size_t *bytes)
{
    *base = p->base;
    *bytes = p->bytes;
}

/* The slot at an extent of the arena; its n_tok stays. */
static void place(const struct kv_pool *p, struct kv_slot *r, const struct kv_extent *e)
{
    size_t large = (size_t)(e->first_tok / p->max_tok),
           inside = (size_t)(e->first_tok % p->max_tok);

    r->base = (char *)p->base + large * p->large_bytes + inside * p->token_bytes;
    r->slot = e->id;
    r->first_tok = e->first_tok;
    r->cap_tok = e->cap_tok;
    r->n_kv_heads = p->shape.n_kv_heads;
    r->head_bytes = (size_t)e->cap_tok * p->shape.head_dim * p->shape.elem_bytes;
}

static int choose(struct kv_pool *p, int64_t n_tok, struct kv_slot *out)
{
    struct kv_need need = {.prompt_tok = n_tok};
    struct kv_extent e;
    int rc = p->alloc->reserve(p->state, &need, &e);

    if (rc == OK)
        place(p, out, &e);
    return rc;
}

/* Let *r hold n_tok tokens, elsewhere or with more memory to its right: either way each run of
 * a head gets longer. The last is copied first, so that no run overwrites another. */
static int enlarge(struct kv_pool *p, struct kv_slot *r, int64_t n_tok)
{
    struct kv_extent e = {
        .id = r->slot, .first_tok = r->first_tok, .cap_tok = r->cap_tok};
    size_t n = (size_t)p->shape.n_layers * p->shape.n_kv_heads * 2;
    size_t used = (size_t)r->n_tok * p->shape.head_dim * p->shape.elem_bytes;
    struct kv_move m = {.old_id = -1};
    struct kv_slot to = *r;

    TRY(p->alloc->grow(p->state, &e, r->n_tok, n_tok, &m));
    place(p, &to, &e);
    while (n-- > 0)
        memmove((char *)to.base + n * to.head_bytes, (char *)r->base + n * r->head_bytes,
                used);
    kv_alloc_moved(p->alloc, p->state, &m);
    p->reserved_bytes += (size_t)(to.cap_tok - r->cap_tok) * p->token_bytes;
    *r = to;
    return OK;
}

void kv_pool_limit(struct kv_pool *p, int64_t n_tok)
{
    p->limit_tok = n_tok;
}

/* May a sequence of `n_tok` tokens reserve `more` of them now? */
static int check_tok(struct kv_pool *p, int64_t n_tok, int64_t more)
{
    if (n_tok > p->max_tok)
        return err_set(ERR_LIMIT, "kv: a sequence of %lld tokens, the longest is %lld",
                       (long long)n_tok, (long long)p->max_tok);
    if (more <= p->limit_tok - p->reserved_tok)
        return OK;
    p->n_refused_total++;
    return err_set(ERR_NOMEM,
                   "kv: %lld of %lld tokens are reserved, %lld more do not fit",
                   (long long)p->reserved_tok, (long long)p->limit_tok, (long long)more);
}

int kv_reserve(struct kv_pool *p, int64_t n_tok, struct kv_slot *out)
{
    int rc;

    memset(out, 0, sizeof(*out));
    if (n_tok < 1)
        return err_set(ERR_ARG, "kv: a sequence of %lld tokens", (long long)n_tok);
    rc = check_tok(p, n_tok, n_tok);
    if (rc != OK)
        return rc;
    rc = choose(p, n_tok, out);
    if (rc != OK) {
        p->n_refused_total++;
        return rc;
    }
    out->n_tok = n_tok;
    p->reserved_tok += n_tok;
    p->reserved_bytes += (size_t)out->cap_tok * p->token_bytes;
    p->n_live++;
    p->n_reserved_total++;
    return OK;
}

int kv_grow(struct kv_pool *p, struct kv_slot *r, int64_t n_tok)
{
    int rc;

    if (n_tok <= r->n_tok)
        return OK;
    rc = check_tok(p, n_tok, n_tok - r->n_tok);
    if (rc != OK)
        return rc;
    if (n_tok > r->cap_tok)
        rc = enlarge(p, r, n_tok);
    if (rc != OK) {
        p->n_refused_total++;
        return rc;
    }
    p->reserved_tok += n_tok - r->n_tok;
    r->n_tok = n_tok;
    return OK;
}

/* Takes all there are, then gives them back, the last one first: the allocator is as it
 * was. */
int kv_pool_each(struct kv_pool *p, void (*fn)(void *ctx, const struct kv_slot *r),
                 void *ctx)
{
    size_t n_max = p->bytes / (p->token_bytes * (size_t)p->max_tok), n = 0;
    struct kv_slot r;
    int64_t *slots;

    if (p->n_live > 0)
        return err_set(ERR_STATE, "kv: %lld sequences have memory", (long long)p->n_live);
    slots = mem_new(MEM_KV, n_max, sizeof(*slots));
    if (!slots)
        return ERR_NOMEM;
    for (; n < n_max && choose(p, p->max_tok, &r) == OK; n++) {
        slots[n] = r.slot;
        fn(ctx, &r);
    }
    if (n < n_max)
        err_clear(); /* there are no more: no news to anybody */
    while (n > 0)
        p->alloc->release(p->state, slots[--n]);
    mem_free(slots);
    return OK;
}

void kv_release(struct kv_pool *p, struct kv_slot *r)
{
    if (!r->base)
        return;
    p->alloc->release(p->state, r->slot);
    p->reserved_tok -= r->n_tok;
    p->reserved_bytes -= (size_t)r->cap_tok * p->token_bytes;
    p->n_live--;
    memset(r, 0, sizeof(*r));
}

void kv_pool_stat(const struct kv_pool *p, struct kv_stat *out)
{
    out->pool_bytes = p->bytes;
    out->reserved_bytes = p->reserved_bytes;
    out->limit_tok = p->limit_tok;
    out->reserved_tok = p->reserved_tok;
    out->n_live = p->n_live;
    out->n_reserved_total = p->n_reserved_total;
    out->n_refused_total = p->n_refused_total;
}
