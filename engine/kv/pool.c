#include "kv/kv.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/buckets.h"

#define CACHE_LINE    64
#define FIXED_BUCKETS 10
#define KEEP_FRAC     0.02 /* the largest batches of the study odma_replay, of 0 to 0.1 */

/* One owner writes; the totals are atomic so that any thread may read them. */
struct kv_pool {
    const struct kv_alloc *alloc;
    void *state;
    void *base;
    int fd; /* of the memory; -1: it is this process's own */
    size_t bytes, token_bytes;
    /* The arena is a row of units, each of whole cache lines: of the longest sequence, or of a
     * block where the allocator gives tables of blocks. */
    int64_t unit_tok;
    size_t unit_bytes;
    struct kv_shape shape;
    int64_t max_tok, limit_tok;
    _Atomic size_t reserved_bytes;
    _Atomic int64_t reserved_tok, n_live, n_reserved_total, n_refused_total;
    _Atomic int64_t n_moved, n_extended, migrated_bytes, n_alloc, alloc_ns, migrate_ns;
};

size_t kv_token_bytes(const struct kv_shape *s)
{
    return (size_t)s->n_layers * s->n_kv_heads * 2 * s->vec_bytes;
}

/* ---- opening ---- */

static int check_opts(const struct kv_shape *s, const struct kv_pool_opts *o)
{
    if (s->n_layers < 1 || s->n_kv_heads < 1 || s->vec_bytes < 1 || o->max_tok < 1)
        return err_set(ERR_ARG,
                       "kv pool: layers %d, heads %d, vec_bytes %zu, max_tok %lld: "
                       "expected all >= 1",
                       s->n_layers, s->n_kv_heads, s->vec_bytes, (long long)o->max_tok);
    return OK;
}

/* The geometry of a pool: everything but its memory and its allocator's state. */
static int plan_pool(struct kv_pool *p, const struct kv_shape *shape,
                     const struct kv_pool_opts *o)
{
    int64_t align;

    TRY(check_opts(shape, o));
    TRY(kv_alloc_find(o->alloc ? o->alloc : "static", &p->alloc));
    if (p->alloc->paged)
        TRY(kv_block_tok_check(o->block_tok));
    align = p->alloc->several_sizes ? KV_ALIGN_TOK : 1;
    p->shape = *shape;
    p->max_tok = o->max_tok;
    p->limit_tok = INT64_MAX;
    p->token_bytes = kv_token_bytes(shape);
    p->bytes = o->budget_bytes;
    p->unit_tok = p->alloc->paged ? o->block_tok : o->max_tok;
    if (__builtin_add_overflow(p->unit_tok, align - 1, &p->unit_tok) ||
        __builtin_mul_overflow(p->token_bytes, (size_t)(p->unit_tok / align * align),
                               &p->unit_bytes) ||
        __builtin_add_overflow(p->unit_bytes, CACHE_LINE - 1, &p->unit_bytes))
        return err_set(ERR_LIMIT, "kv: %lld tokens of %zu bytes overflow",
                       (long long)o->max_tok, p->token_bytes);
    p->unit_tok -= p->unit_tok % align;
    p->unit_bytes -= p->unit_bytes % CACHE_LINE;
    return OK;
}

static int64_t units_of_longest(const struct kv_pool *p)
{
    return p->max_tok / p->unit_tok + (p->max_tok % p->unit_tok > 0);
}

static int64_t arena_tok(const struct kv_pool *p)
{
    return (int64_t)(p->bytes / p->unit_bytes) * p->unit_tok;
}

static int open_alloc(struct kv_pool *p, const struct kv_pool_opts *o)
{
    struct kv_arena a = {.max_tok = p->alloc->paged ? p->max_tok : p->unit_tok,
                         .align_tok = p->alloc->several_sizes ? KV_ALIGN_TOK : 1,
                         .block_tok = o->block_tok,
                         .max_seqs = o->max_seqs,
                         .keep_frac = KEEP_FRAC,
                         .shared = o->shared,
                         .n_fixed = FIXED_BUCKETS,
                         .large_frac = o->large_frac,
                         .bounds = o->bounds};

    if (p->bytes / p->unit_bytes < (size_t)units_of_longest(p))
        return err_set(
            ERR_NOMEM,
            "kv pool of %zu bytes holds no sequence of %lld tokens (%zu bytes)", p->bytes,
            (long long)p->max_tok, p->unit_bytes * (size_t)units_of_longest(p));
    a.n_tok = arena_tok(p);
    return kv_alloc_open(p->alloc, &p->state, &a);
}

int kv_pool_bytes(size_t *out, const struct kv_shape *shape, const struct kv_pool_opts *o,
                  int64_t n_seqs)
{
    struct kv_pool p;

    TRY(plan_pool(&p, shape, o));
    if (!__builtin_mul_overflow(p.unit_bytes, (size_t)units_of_longest(&p), out) &&
        !__builtin_mul_overflow(*out, (size_t)n_seqs, out) && *out <= INT64_MAX / 2)
        return OK;
    return err_set(ERR_LIMIT, "kv: %lld sequences of %lld tokens of %zu bytes overflow",
                   (long long)n_seqs, (long long)o->max_tok, p.token_bytes);
}

int kv_pool_open(struct kv_pool **out, const struct kv_shape *shape,
                 const struct kv_pool_opts *o)
{
    struct kv_pool *p = mem_new(MEM_KV, 1, sizeof(*p));
    int rc;

    *out = NULL;
    if (!p)
        return ERR_NOMEM;
    p->fd = -1;
    rc = plan_pool(p, shape, o);
    if (rc == OK)
        rc = open_alloc(p, o);
    if (rc == OK) {
        p->base = o->shared ? mem_map_shared_fd(MEM_KV, p->bytes, &p->fd)
                            : mem_map(MEM_KV, p->bytes, MEM_NODE_ANY);
        rc = p->base ? OK : ERR_NOMEM;
    }
    if (rc == OK)
        *out = p, p = NULL; /* the caller's now */
    kv_pool_close(&p);
    return rc;
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
    if (p->fd >= 0)
        close(p->fd);
    mem_free(p);
    *pp = NULL;
}

void kv_pool_limit(struct kv_pool *p, int64_t n_tok)
{
    p->limit_tok = n_tok;
}

/* ---- memory ---- */

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

int kv_pool_fd(const struct kv_pool *p)
{
    return p->fd;
}

/* The slot of an extent of the arena; its n_tok stays. */
static void place(const struct kv_pool *p, struct kv_slot *r, const struct kv_extent *e)
{
    int64_t run_tok = e->blocks ? p->unit_tok : e->cap_tok;

    r->base = p->base;
    r->slot = e->id;
    r->first_tok = e->first_tok;
    r->cap_tok = e->cap_tok;
    r->run_bytes = (size_t)run_tok * p->shape.vec_bytes;
    r->head_stride = 2 * r->run_bytes;
    r->layer_stride = r->head_stride * (size_t)p->shape.n_kv_heads;
    if (p->alloc->several_sizes) {
        size_t token = p->token_bytes / (size_t)p->shape.n_kv_heads;

        r->base = (char *)p->base + (size_t)e->first_tok * token;
        r->head_stride = (size_t)arena_tok(p) * token;
        r->layer_stride = 2 * r->run_bytes;
    } else if (!e->blocks) {
        r->base = (char *)p->base + (size_t)(e->first_tok / p->unit_tok) * p->unit_bytes;
    }
    r->blocks = e->blocks;
    r->block_tok = e->blocks ? p->unit_tok : 0;
    r->block_bytes = e->blocks ? p->unit_bytes : 0;
}

void kv_pool_each(const struct kv_pool *p, void (*fn)(void *ctx, const struct kv_slot *r),
                  void *ctx)
{
    int64_t each = p->alloc->several_sizes ? arena_tok(p) : p->unit_tok;

    for (int64_t i = 0; i < arena_tok(p) / each; i++) {
        const struct kv_extent e = {.id = i, .first_tok = i * each, .cap_tok = each};
        struct kv_slot r = {.n_tok = each};

        place(p, &r, &e);
        fn(ctx, &r);
    }
}

/* ---- sequences ---- */

/* May a sequence of `n_tok` tokens reserve `more` of them now? */
static int check_tok(const struct kv_pool *p, int64_t n_tok, int64_t more)
{
    if (n_tok > p->max_tok)
        return err_set(ERR_LIMIT, "kv: a sequence of %lld tokens, the longest is %lld",
                       (long long)n_tok, (long long)p->max_tok);
    if (more <= p->limit_tok - p->reserved_tok)
        return OK;
    return err_set(ERR_NOMEM,
                   "kv: %lld of %lld tokens are reserved, %lld more do not fit",
                   (long long)p->reserved_tok, (long long)p->limit_tok, (long long)more);
}

static void count_alloc(struct kv_pool *p, uint64_t t0)
{
    p->n_alloc++;
    p->alloc_ns += (int64_t)(clock_ns() - t0);
}

int64_t kv_need_tok(const struct kv_pool *p, const struct kv_need *need)
{
    return kv_alloc_need_tok(p->alloc, need);
}

/* `out` is zeroed. */
static int reserve(struct kv_pool *p, const struct kv_need *need, struct kv_slot *out)
{
    struct kv_extent e = {0};
    int64_t n_tok;
    uint64_t t0;
    int rc;

    TRY(kv_need_check(need, p->max_tok));
    n_tok = kv_need_tok(p, need);
    TRY(check_tok(p, n_tok, n_tok));
    t0 = clock_ns();
    rc = p->alloc->reserve(p->state, need, &e);
    count_alloc(p, t0);
    if (rc != OK)
        return rc;
    place(p, out, &e);
    out->n_tok = n_tok;
    p->reserved_tok += n_tok;
    p->reserved_bytes += (size_t)out->cap_tok * p->token_bytes;
    p->n_live++;
    p->n_reserved_total++;
    return OK;
}

int kv_reserve(struct kv_pool *p, const struct kv_need *need, struct kv_slot *out)
{
    int rc;

    memset(out, 0, sizeof(*out));
    rc = reserve(p, need, out);
    p->n_refused_total += rc == ERR_NOMEM;
    return rc;
}

int kv_bucket(const struct kv_pool *p, const struct kv_need *need)
{
    const struct kv_bounds *b = kv_alloc_bounds(p->alloc, p->state);

    return b ? kv_bounds_bucket(b, need) : 0;
}

/* Copy what there is of each head in each layer, one run, to where there is more room for it. The
 * last layer goes first, so that no run overwrites another in a slot that grew where it was;
 * each head has its own part of the pool. */
static void copy_runs(struct kv_pool *p, const struct kv_slot *to,
                      const struct kv_slot *from, int64_t used_tok)
{
    size_t used = (size_t)used_tok * p->shape.vec_bytes;
    uint64_t t0 = clock_ns();

    for (int head = 0; head < p->shape.n_kv_heads; head++)
        for (int layer = p->shape.n_layers - 1; layer >= 0; layer--) {
            memmove(kv_values_at(to, layer, head) - used,
                    kv_values_at(from, layer, head) - used, 2 * used);
            p->migrated_bytes += (int64_t)(2 * used);
        }
    p->migrate_ns += (int64_t)(clock_ns() - t0);
}

/* Let *r hold n_tok tokens. */
static int enlarge(struct kv_pool *p, struct kv_slot *r, int64_t used_tok, int64_t n_tok)
{
    struct kv_extent e = {.id = r->slot,
                          .first_tok = r->first_tok,
                          .cap_tok = r->cap_tok,
                          .blocks = r->blocks};
    struct kv_move m = {.old_id = -1};
    struct kv_slot to = *r;
    uint64_t t0 = clock_ns();
    int rc = p->alloc->grow(p->state, &e, used_tok, n_tok, &m);

    count_alloc(p, t0);
    if (rc != OK)
        return rc;
    place(p, &to, &e);
    if (!e.blocks) {
        copy_runs(p, &to, r, used_tok);
        p->n_moved += m.old_id >= 0;
        p->n_extended += m.old_id < 0;
    }
    kv_alloc_moved(p->alloc, p->state, &m);
    p->reserved_bytes += (size_t)(to.cap_tok - r->cap_tok) * p->token_bytes;
    *r = to;
    return OK;
}

int kv_grow(struct kv_pool *p, struct kv_slot *r, int64_t used_tok, int64_t n_tok)
{
    int rc;

    if (n_tok <= r->n_tok)
        return OK;
    rc = check_tok(p, n_tok, n_tok - r->n_tok);
    if (rc == OK && n_tok > r->cap_tok)
        rc = enlarge(p, r, used_tok, n_tok);
    if (rc != OK) {
        p->n_refused_total += rc == ERR_NOMEM;
        return rc;
    }
    p->reserved_tok += n_tok - r->n_tok;
    r->n_tok = n_tok;
    return OK;
}

void kv_release(struct kv_pool *p, struct kv_slot *r)
{
    uint64_t t0 = clock_ns();

    if (!r->base)
        return;
    p->alloc->release(p->state, r->slot);
    count_alloc(p, t0);
    p->reserved_tok -= r->n_tok;
    p->reserved_bytes -= (size_t)r->cap_tok * p->token_bytes;
    p->n_live--;
    memset(r, 0, sizeof(*r));
}

void kv_pool_stat(const struct kv_pool *p, struct kv_stat *out)
{
    *out = (struct kv_stat){.pool_bytes = p->bytes,
                            .reserved_bytes = p->reserved_bytes,
                            .pool_tok = arena_tok(p),
                            .limit_tok = p->limit_tok,
                            .reserved_tok = p->reserved_tok,
                            .n_live = p->n_live,
                            .n_reserved_total = p->n_reserved_total,
                            .n_refused_total = p->n_refused_total,
                            .n_moved_total = p->n_moved,
                            .n_extended_total = p->n_extended,
                            .migrated_bytes_total = p->migrated_bytes,
                            .n_alloc_total = p->n_alloc,
                            .alloc_ns_total = p->alloc_ns,
                            .migrate_ns_total = p->migrate_ns};
}
