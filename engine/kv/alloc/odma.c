/* Buckets whose bounds follow the lengths of finished requests, and a large bucket for
 * sequences that cannot be predicted.
 *
 * Deviations from the paper. A sequence that outgrows its bucket moves to a large one there;
 * here its memory doubles, since where answers are much shorter than the longest sequence a large
 * bucket holds dozens of them (Natural Questions: 20 tokens of 256). kv_arena.to_large is the
 * paper's rule. Where lengths change, the window of kv/buckets.h forgets those before at once; the
 * paper's slides. Large blocks are of what is free unless kv_arena.large_frac keeps a pool of them
 * free, as in the paper. The paper has a list of blocks for each of three sizes, which is
 * alloc/odma_paper.c; here memory is one row of runs (kv/runs.h says why).
 *   Paper: ODMA 3.3-3.5. */
#include "base/mem.h"
#include "kv/buckets.h"
#include "kv/large.h"
#include "kv/runs.h"

struct odma {
    int64_t max_tok;
    bool to_large;
    const struct kv_bounds *bounds;
    struct kv_large *large; /* blocks in reserve; by default none */
    struct kv_runs *runs;   /* of the rest */
};

static void odma_close(void *state)
{
    struct odma *o = state;

    kv_large_close(&o->large);
    kv_runs_close(&o->runs);
    mem_free(o);
}

static int odma_open(void **state, const struct kv_arena *a)
{
    struct odma *o = mem_new(MEM_KV, 1, sizeof(*o));
    struct kv_arena rest;
    int rc;

    if (!o)
        return ERR_NOMEM;
    o->max_tok = a->max_tok;
    o->bounds = a->bounds;
    o->to_large = a->to_large;
    rc = kv_large_open(&o->large, &rest, a, a->n_tok / a->align_tok);
    if (rc == OK)
        rc = kv_runs_open(&o->runs, &rest);
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
    if (kv_large_wanted(o->bounds, need) && kv_large_take(o->large, out))
        return OK;
    return kv_runs_reserve(o->runs, n, out);
}

/* false: the reserve is empty. */
static bool move_to_large(struct odma *o, struct kv_extent *e, int64_t used_tok,
                          struct kv_move *m)
{
    struct kv_extent to;

    if (!kv_large_take(o->large, &to))
        return false;
    kv_alloc_move(e, &to, used_tok, m);
    return true;
}

/* A block of the reserve is taken first with to_large, else last. With to_large, less than a large
 * bucket is taken where none is free; who finds nothing waits or begins again (sched/loop.h). */
static int odma_grow(void *state, struct kv_extent *e, int64_t used_tok, int64_t want_tok,
                     struct kv_move *m)
{
    struct odma *o = state;
    int64_t twice = 2 * e->cap_tok < o->max_tok ? 2 * e->cap_tok : o->max_tok;
    int64_t enough = twice > want_tok ? twice : want_tok;
    const int64_t sizes[] = {o->to_large ? o->max_tok : enough, enough, want_tok};
    int rc = ERR_NOMEM;

    TRY(kv_want_check(want_tok, o->max_tok));
    if (want_tok <= e->cap_tok || kv_runs_extend(o->runs, e, want_tok, enough))
        return OK;
    if (o->to_large && move_to_large(o, e, used_tok, m))
        return OK;
    for (int i = 0; i < 3 && rc != OK; i++) {
        err_clear();
        rc = kv_runs_move(o->runs, e, used_tok, sizes[i], m);
    }
    if (rc == ERR_NOMEM && move_to_large(o, e, used_tok, m)) {
        err_clear();
        rc = OK;
    }
    return rc;
}

static void odma_release(void *state, int64_t id)
{
    struct odma *o = state;

    if (!kv_large_give_back(o->large, id))
        kv_runs_release(o->runs, id);
}

static void odma_stat(const void *state, struct kv_alloc_stat *out)
{
    const struct odma *o = state;

    kv_runs_stat(o->runs, out);
    kv_large_stat(o->large, out);
}

static const struct kv_bounds *odma_bounds(const void *state)
{
    return ((const struct odma *)state)->bounds;
}

const struct kv_alloc kv_alloc_odma = {
    .name = "odma",
    .help = "contiguous blocks of buckets that follow the lengths, and a large bucket",
    .several_sizes = true,
    .learns = true,
    .open = odma_open,
    .close = odma_close,
    .reserve = odma_reserve,
    .grow = odma_grow,
    .moved = odma_release,
    .release = odma_release,
    .stat = odma_stat,
    .bounds = odma_bounds,
};
