/* Runs of a slot in every layout: the bytes of the tokens in canonical order, in as few runs as
 * memory allows; what is copied between layouts is what is filled, and nothing else changes. */
#include "tests/support/test.h"

#include "kv/buckets.h"
#include "kv/slot_runs.h"

#define MAX_TOK 150
#define N_SEQS  6

static const struct kv_bounds bounds = {
    .n = 2, .of_total = true, .align_tok = 16, .tok = {48, 96}};

/* A pool of some layout, in which some of several slots were released, so that blocks are not
 * in order. */
struct layout {
    const char *alloc;
    struct kv_pool *pool;
    struct kv_slot slots[N_SEQS];
    struct kv_slot *slot; /* one that is reserved, for n_tok tokens */
    int64_t n_tok;
};

static int64_t below(struct rng *r, int64_t n)
{
    return (int64_t)rng_below(r, (uint64_t)n);
}

static void open_layout(struct layout *l, const struct kv_shape *shape, int64_t n_tok,
                        struct rng *r)
{
    struct kv_pool_opts o = {.max_tok = MAX_TOK,
                             .block_tok = 16 << below(r, 3),
                             .max_seqs = N_SEQS,
                             .bounds = &bounds};
    int n_allocs = 0;

    while (kv_allocs[n_allocs])
        n_allocs++;
    *l = (struct layout){.n_tok = n_tok};
    o.alloc = l->alloc = kv_allocs[below(r, n_allocs)]->name;
    assert_ok(kv_pool_bytes(&o.budget_bytes, shape, &o, N_SEQS));
    assert_ok(kv_pool_open(&l->pool, shape, &o));
    for (int i = 0; i < N_SEQS - 1; i++) {
        const struct kv_need need = {.prompt_tok = 1 + below(r, MAX_TOK)};

        assert_ok(kv_reserve(l->pool, &need, &l->slots[i]));
    }
    for (int i = 0; i < N_SEQS - 1; i += 2)
        kv_release(l->pool, &l->slots[i]);
    l->slot = &l->slots[N_SEQS - 1];
    assert_ok(kv_reserve(l->pool, &(struct kv_need){.prompt_tok = 1}, l->slot));
    while (l->slot->n_tok < n_tok) {
        int64_t more = l->slot->n_tok + 1 + below(r, 64);

        assert_ok(kv_grow(l->pool, l->slot, 0, more < n_tok ? more : n_tok));
    }
}

static void close_layout(struct layout *l)
{
    for (int i = 0; i < N_SEQS; i++)
        kv_release(l->pool, &l->slots[i]);
    kv_pool_close(&l->pool);
}

static struct kv_shape any_shape(struct rng *r)
{
    return (struct kv_shape){.n_layers = 1 + (int)below(r, 3),
                             .n_kv_heads = 1 + (int)below(r, 3),
                             .vec_bytes = 4 * (1 + (size_t)below(r, 9))};
}

/* The i-th of the 2 n vectors of tokens [lo, lo + n) in canonical order. */
static char *vector_at(const struct kv_slot *s, size_t vec_bytes, int layer, int head,
                       int64_t lo, int64_t n, int64_t i)
{
    return i < n ? kv_token_at(s, layer, head, 0, lo + n - 1 - i, vec_bytes)
                 : kv_token_at(s, layer, head, 1, lo + i - n, vec_bytes);
}

/* Returns the number of runs. */
static int check_runs(const struct kv_slot *s, size_t vec_bytes, int layer, int head,
                      int64_t lo, int64_t hi)
{
    struct kv_slot_runs walk;
    struct kv_run run;
    int64_t i = 0;
    char *end = NULL;
    int n_runs = 0;

    kv_slot_runs(&walk, s, vec_bytes, layer, head, lo, hi);
    for (; kv_slot_runs_next(&walk, &run); n_runs++) {
        assert_true(run.bytes > 0 && run.bytes % vec_bytes == 0);
        assert_ptr_not_equal(run.at, end);
        for (size_t at = 0; at < run.bytes; at += vec_bytes, i++)
            assert_ptr_equal(run.at + at,
                             vector_at(s, vec_bytes, layer, head, lo, hi - lo, i));
        end = run.at + run.bytes;
    }
    assert_int_equal(i, 2 * (hi - lo));
    assert_false(kv_slot_runs_next(&walk, &run));
    return n_runs;
}

TEST(runs_are_in_canonical_order)
{
    int n_blocks_seen = 0;
    struct rng r;

    rng_init(&r, test_seed(), "runs");
    for (int round = 0; round < 400; round++) {
        struct kv_shape shape = any_shape(&r);
        int64_t hi = 1 + below(&r, MAX_TOK), lo = below(&r, hi + 1);
        int layer = (int)below(&r, shape.n_layers),
            head = (int)below(&r, shape.n_kv_heads);
        struct layout l;
        int n;

        open_layout(&l, &shape, hi, &r);
        lo = round % 2 ? lo : 0;
        n = check_runs(l.slot, shape.vec_bytes, layer, head, lo, hi);
        if (lo == hi) {
            assert_int_equal(n, 0);
        } else if (!l.slot->blocks) {
            assert_int_equal(n, lo == 0 ? 1 : 2);
        } else {
            int64_t b = l.slot->block_tok, blocks = (hi - 1) / b - lo / b + 1;

            assert_int_equal(n, 2 * blocks - (lo % b == 0));
            n_blocks_seen += blocks > 1;
        }
        close_layout(&l);
    }
    assert_true(n_blocks_seen > 20);
}

static void fill(const struct layout *l, struct rng *r)
{
    size_t bytes;
    void *base;

    kv_pool_memory(l->pool, &base, &bytes);
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)base)[i] = (unsigned char)rng_u64(r);
}

static int n_calls;

static void counted_copy(void *to, const void *from, size_t bytes)
{
    n_calls++;
    memcpy(to, from, bytes);
}

/* Both pools as they are, with the tokens of one layer copied vector by vector. */
static char *expected(const struct layout *to, const struct layout *from,
                      const struct kv_shape *shape, int layer, int64_t lo, int64_t hi)
{
    size_t bytes, vec = shape->vec_bytes;
    char *copy;
    void *base;

    kv_pool_memory(to->pool, &base, &bytes);
    copy = mem_new(MEM_TEST, 1, bytes);
    assert_non_null(copy);
    memcpy(copy, base, bytes);
    for (int i = 0; i < shape->n_kv_heads * 2; i++)
        for (int64_t t = lo; t < hi; t++)
            memcpy(copy + ((char *)kv_token_at(to->slot, layer, i / 2, i % 2, t, vec) -
                           (char *)base),
                   kv_token_at(from->slot, layer, i / 2, i % 2, t, vec), vec);
    return copy;
}

TEST(copies_between_layouts)
{
    int n_pairs = 0;
    struct rng r;

    rng_init(&r, test_seed(), "copies");
    for (int round = 0; round < 300; round++) {
        struct kv_shape shape = any_shape(&r);
        int64_t hi = 1 + below(&r, MAX_TOK), lo = round % 3 ? 0 : below(&r, hi + 1);
        int layer = (int)below(&r, shape.n_layers);
        struct layout to, from;
        size_t bytes;
        void *base;
        char *want;

        open_layout(&to, &shape, hi, &r);
        open_layout(&from, &shape, hi, &r);
        n_pairs += strcmp(to.alloc, from.alloc) != 0;
        fill(&to, &r);
        fill(&from, &r);
        want = expected(&to, &from, &shape, layer, lo, hi);
        n_calls = 0;
        kv_slot_copy(to.slot, from.slot, &shape, layer, lo, hi,
                     round % 2 ? counted_copy : NULL);
        assert_true((n_calls > 0) == (round % 2 && lo < hi));
        kv_pool_memory(to.pool, &base, &bytes);
        assert_memory_equal(base, want, bytes);
        assert_true(kv_slot_hash(to.slot, &shape, layer, lo, hi) ==
                    kv_slot_hash(from.slot, &shape, layer, lo, hi));
        mem_free(want);
        close_layout(&to);
        close_layout(&from);
    }
    assert_true(n_pairs > 100);
}

/* One bit of any vector changes the hash, one beyond the tokens does not. */
TEST(hash_is_of_what_is_filled)
{
    struct rng r;

    rng_init(&r, test_seed(), "hash");
    for (int round = 0; round < 100; round++) {
        struct kv_shape shape = any_shape(&r);
        int64_t hi = 2 + below(&r, MAX_TOK - 2), tok = below(&r, hi);
        int head = (int)below(&r, shape.n_kv_heads);
        struct layout l;
        uint64_t h;
        char *at;

        open_layout(&l, &shape, hi, &r);
        fill(&l, &r);
        h = kv_slot_hash(l.slot, &shape, 0, 0, hi - 1);
        at = kv_token_at(l.slot, 0, head, round % 2, tok, shape.vec_bytes);
        at[below(&r, (int64_t)shape.vec_bytes)] ^= (char)(1 << below(&r, 8));
        assert_true((kv_slot_hash(l.slot, &shape, 0, 0, hi - 1) == h) == (tok == hi - 1));
        close_layout(&l);
    }
}
