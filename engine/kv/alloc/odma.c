/* Buckets whose bounds follow the lengths of finished requests, and a large bucket for
 * sequences that outgrow theirs or cannot be predicted.   Paper: ODMA 3.3-3.5. */
#include "base/mem.h"
#include "kv/buckets.h"
#include "kv/classes.h"

/* A sequence that outgrows its block must find one while others run: with none kept, all of
 * them could wait for one another. */
#define KEEP_LARGE 1

struct odma {
    int64_t max_tok;
    const struct kv_bounds *bounds;
    struct kv_classes *classes;
};

static void odma_close(void *state)
{
    struct odma *o = state;

    kv_classes_close(&o->classes);
    mem_free(o);
}

static int odma_open(void **state, const struct kv_arena *a)
{
    struct odma *o = mem_new(MEM_KV, 1, sizeof(*o));
    int rc;

    if (!o)
        return ERR_NOMEM;
    o->max_tok = a->max_tok;
    o->bounds = a->bounds;
    rc = kv_classes_open(&o->classes, a);
    if (rc == OK)
        *state = o;
    else
        odma_close(o);
    return rc;
}

static int odma_reserve(void *state, const struct kv_need *need, struct kv_extent *out)
{
    struct odma *o = state;
    int64_t n = o->max_tok;

    TRY(kv_need_check(need, o->max_tok));
    if (o->bounds)
        n = kv_bounds_size(o->bounds, need, o->max_tok);
    return kv_classes_reserve(o->classes, n, KEEP_LARGE, out);
}

static int odma_grow(void *state, struct kv_extent *e, int64_t used_tok, int64_t want_tok,
                     struct kv_move *m)
{
    struct odma *o = state;

    TRY(kv_want_check(want_tok, o->max_tok));
    if (want_tok <= e->cap_tok || kv_classes_extend(o->classes, e, want_tok))
        return OK;
    return kv_classes_move(o->classes, e, used_tok, o->max_tok, m);
}

static void odma_release(void *state, int64_t id)
{
    struct odma *o = state;

    kv_classes_release(o->classes, id);
}

static void odma_stat(const void *state, struct kv_alloc_stat *out)
{
    const struct odma *o = state;

    kv_classes_stat(o->classes, out);
}

static int odma_bucket(const void *state, const struct kv_need *need)
{
    const struct odma *o = state;

    return o->bounds ? kv_bounds_bucket(o->bounds, need) : 0;
}

const struct kv_alloc kv_alloc_odma = {
    .name = "odma",
    .help = "contiguous blocks of buckets that follow the lengths, and a large bucket",
    .several_sizes = true,
    .open = odma_open,
    .close = odma_close,
    .reserve = odma_reserve,
    .grow = odma_grow,
    .moved = odma_release,
    .release = odma_release,
    .stat = odma_stat,
    .bucket = odma_bucket,
};
