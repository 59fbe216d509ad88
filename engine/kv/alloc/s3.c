/* Fixed buckets: a sequence gets a contiguous block of the smallest bucket that holds its
 * predicted length, and twice as much when it outgrows it, as in S3 (Jin et al., NeurIPS
 * 2023). The bounds are equal parts of the longest sequence and never change. */
#include "base/mem.h"
#include "kv/buckets.h"
#include "kv/runs.h"

struct fixed {
    int64_t max_tok;
    struct kv_bounds bounds;
    struct kv_runs *runs;
};

static void fixed_close(void *state)
{
    struct fixed *f = state;

    kv_runs_close(&f->runs);
    mem_free(f);
}

static int fixed_open(void **state, const struct kv_arena *a)
{
    struct fixed *f;
    int rc;

    if (a->n_fixed < 1 || a->n_fixed > KV_BUCKETS_MAX)
        return err_set(ERR_ARG, "kv: %lld fixed buckets: expected 1 to %d",
                       (long long)a->n_fixed, KV_BUCKETS_MAX);
    f = mem_new(MEM_KV, 1, sizeof(*f));
    if (!f)
        return ERR_NOMEM;
    f->max_tok = a->max_tok;
    kv_bounds_equal(&f->bounds, (int)a->n_fixed, a->max_tok, a->align_tok);
    rc = kv_runs_open(&f->runs, a);
    if (rc == OK)
        *state = f;
    else
        fixed_close(f);
    return rc;
}

static int fixed_reserve(void *state, const struct kv_need *need, struct kv_extent *out)
{
    struct fixed *f = state;

    TRY(kv_need_check(need, f->max_tok));
    return kv_runs_reserve(f->runs, kv_bounds_size(&f->bounds, need, f->max_tok), out);
}

static int fixed_grow(void *state, struct kv_extent *e, int64_t used_tok,
                      int64_t want_tok, struct kv_move *m)
{
    struct fixed *f = state;
    int64_t n = 2 * e->cap_tok > want_tok ? 2 * e->cap_tok : want_tok;

    TRY(kv_want_check(want_tok, f->max_tok));
    if (want_tok <= e->cap_tok)
        return OK;
    n = n < f->max_tok ? n : f->max_tok;
    return kv_runs_move(f->runs, e, used_tok, n, m);
}

static void fixed_release(void *state, int64_t id)
{
    struct fixed *f = state;

    kv_runs_release(f->runs, id);
}

static void fixed_stat(const void *state, struct kv_alloc_stat *out)
{
    const struct fixed *f = state;

    kv_runs_stat(f->runs, out);
}

static const struct kv_bounds *fixed_bounds(const void *state)
{
    return &((const struct fixed *)state)->bounds;
}

const struct kv_alloc kv_alloc_s3 = {
    .name = "s3",
    .help = "contiguous blocks of fixed buckets, doubled when they overflow",
    .several_sizes = true,
    .open = fixed_open,
    .close = fixed_close,
    .reserve = fixed_reserve,
    .grow = fixed_grow,
    .moved = fixed_release,
    .release = fixed_release,
    .stat = fixed_stat,
    .bounds = fixed_bounds,
};
