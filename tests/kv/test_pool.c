/* Every allocator: slots never overlap, a released one is used again, one that grows keeps its
 * keys and values, running out is ERR_NOMEM, totals add up, and no failed allocation leaks. */
#include "tests/support/test.h"

#include "base/clock.h"
#include "kv/alloc.h"
#include "kv/buckets.h"
#include "kv/kv.h"

#define HEAD_DIM 6
static const struct kv_shape shape = {
    .n_layers = 3, .n_kv_heads = 2, .vec_bytes = HEAD_DIM * sizeof(int16_t)};
#define MAX_TOK 80
#define N_LIVE  64

/* Buckets that sequences outgrow. */
static const struct kv_bounds bounds = {
    .n = 2, .of_total = true, .align_tok = 16, .tok = {16, 32}};

static struct kv_pool_opts opts(const char *alloc, size_t budget_bytes)
{
    return (struct kv_pool_opts){.alloc = alloc,
                                 .budget_bytes = budget_bytes,
                                 .max_tok = MAX_TOK,
                                 .block_tok = 16,
                                 .max_seqs = N_LIVE,
                                 .bounds = &bounds};
}

static struct kv_pool *open_pool(const char *alloc, size_t budget_bytes)
{
    const struct kv_pool_opts o = opts(alloc, budget_bytes);
    struct kv_pool *p;

    assert_ok(kv_pool_open(&p, &shape, &o));
    return p;
}

static int reserve(struct kv_pool *p, int64_t n_tok, struct kv_slot *out)
{
    return kv_reserve(p, &(struct kv_need){.prompt_tok = n_tok}, out);
}

/* The key or value of a token. */
static int16_t *token_at(const struct kv_slot *r, int layer, int kv_head, int v,
                         int64_t tok)
{
    return kv_token_at(r, layer, kv_head, v, tok, shape.vec_bytes);
}

TEST(test_token_bytes)
{
    assert_int_equal(kv_token_bytes(&shape), 3 * 2 * 2 * 6 * 2);
}

TEST(test_layout)
{
    struct kv_pool *p = open_pool(NULL, 1 << 20);
    struct kv_slot r;

    assert_ok(reserve(p, MAX_TOK, &r));
    assert_int_equal(r.run_bytes, r.cap_tok * 6 * 2);
    assert_int_equal((uintptr_t)r.base % 64, 0);
    /* [layer][kv_head][keys downwards | values upwards] */
    assert_ptr_equal(kv_head_at(&r, 0, 0), r.base);
    assert_ptr_equal(kv_head_at(&r, 0, 1), (char *)r.base + 2 * r.run_bytes);
    assert_ptr_equal(kv_head_at(&r, 1, 0), (char *)r.base + 4 * r.run_bytes);
    assert_ptr_equal(token_at(&r, 1, 0, 0, 7), (char *)r.base + 5 * r.run_bytes - 8 * 12);
    assert_ptr_equal(token_at(&r, 1, 0, 1, 7), (char *)r.base + 5 * r.run_bytes + 7 * 12);
    kv_release(p, &r);
    assert_null(r.base);
    kv_release(p, &r); /* nothing reserved: nothing happens */
    kv_pool_close(&p);
    assert_null(p);
    kv_pool_close(&p);
}

/* [block][layer][kv_head][keys downwards | values upwards] */
TEST(test_layout_of_blocks)
{
    struct kv_pool *p = open_pool("paged", 1 << 20);
    struct kv_slot other, r;
    size_t bytes;
    void *base;

    kv_pool_memory(p, &base, &bytes);
    assert_ok(reserve(p, 20, &other));
    assert_ok(reserve(p, 20, &r));
    assert_int_equal(r.cap_tok, 32);
    assert_int_equal(r.block_tok, 16);
    assert_int_equal(r.block_bytes, 16 * kv_token_bytes(&shape));
    assert_int_equal(r.run_bytes, 16 * 6 * 2);
    assert_ptr_equal(r.base, base);
    for (int64_t tok = 0; tok < 32; tok++)
        assert_ptr_equal(token_at(&r, 2, 1, 1, tok),
                         (char *)base + (size_t)r.blocks[tok / 16] * r.block_bytes +
                             ((2 * 2 + 1) * 2 + 1) * r.run_bytes + tok % 16 * 12);
    kv_release(p, &other);
    assert_ok(kv_grow(p, &r, 20, 40)); /* the table is longer, what was there stays */
    assert_int_equal(r.cap_tok, 48);
    assert_ptr_equal(token_at(&r, 0, 0, 0, 0), (char *)base +
                                                   (size_t)r.blocks[0] * r.block_bytes +
                                                   r.run_bytes - 12);
    kv_release(p, &r);
    kv_pool_close(&p);
}

struct growing {
    struct kv_pool *p;
    struct kv_slot live[N_LIVE];
    int16_t value[N_LIVE]; /* what was written into it */
    int n, n_grown, n_enlarged, n_refused;
    int64_t sum;
};

/* Write or check the elements of the slot's tokens [from, n_tok): each is different in every
 * run of a head, and for every `value`. */
static void each_element(const struct kv_slot *r, int64_t from, int16_t value, bool write)
{
    for (int layer = 0; layer < shape.n_layers; layer++)
        for (int h = 0; h < 2 * shape.n_kv_heads; h++) {
            for (int64_t i = from * HEAD_DIM; i < r->n_tok * HEAD_DIM; i++) {
                int16_t want = (int16_t)(value * 1009 + (layer * 4 + h) * 61 + i);
                int16_t *at =
                    token_at(r, layer, h / 2, h % 2, i / HEAD_DIM) + i % HEAD_DIM;

                if (write)
                    *at = want;
                assert_int_equal(*at, want);
            }
        }
}

static int reserve_one(struct growing *g, int64_t want)
{
    int rc;

    if (g->n == N_LIVE)
        return OK;
    rc = reserve(g->p, want, &g->live[g->n]);
    assert_true((rc == OK) == (g->live[g->n].base != NULL));
    if (rc != OK)
        return rc;
    assert_int_equal(g->live[g->n].n_tok, want);
    g->value[g->n] = (int16_t)(g->sum + g->n_grown);
    each_element(&g->live[g->n], 0, g->value[g->n], true);
    g->sum += want;
    g->n++;
    return OK;
}

static int grow_one(struct growing *g, int i, int64_t want)
{
    struct kv_slot *r = &g->live[i], before = *r, grown;
    int rc = kv_grow(g->p, r, before.n_tok, want);

    if (rc == OK && want > before.n_tok) {
        assert_int_equal(r->n_tok, want);
        g->n_grown++;
        g->n_enlarged += r->cap_tok > before.cap_tok;
        grown = *r;
        grown.n_tok = before.n_tok;
        each_element(&grown, 0, g->value[i], false);
        each_element(r, before.n_tok, g->value[i], true);
    } else {
        assert_memory_equal(r, &before, sizeof(before));
    }
    each_element(r, 0, g->value[i], false);
    g->sum += r->n_tok - before.n_tok;
    return rc;
}

/* Slots that are reserved, grow and are released at random under a limit of tokens: never more
 * than it, a refused one is as before, and bytes that were written stay. */
static void grow_at_random(const struct kv_alloc *alloc, int n_larges, int64_t limit)
{
    struct growing g = {.n = 0};
    struct kv_stat st;
    struct rng rng;

    rng_init(&rng, test_seed(), "grow");
    g.p = open_pool(alloc->name, (size_t)n_larges * MAX_TOK * kv_token_bytes(&shape));
    kv_pool_stat(g.p, &st);
    assert_true(st.limit_tok == INT64_MAX);
    assert_int_equal(st.pool_tok, n_larges * MAX_TOK);
    kv_pool_limit(g.p, limit);
    for (int step = 0; step < 3000; step++) {
        int64_t want = 1 + (int64_t)rng_below(&rng, MAX_TOK);
        int i = g.n > 0 ? (int)rng_below(&rng, (uint64_t)g.n) : 0, rc = OK;
        int what = g.n > 0 ? (int)rng_below(&rng, 4) : 0;
        size_t bytes = 0;

        if (what == 0)
            rc = reserve_one(&g, want);
        if (what == 1 || what == 2)
            rc = grow_one(&g, i, want);
        if (what == 3) {
            each_element(&g.live[i], 0, g.value[i], false);
            g.sum -= g.live[i].n_tok;
            kv_release(g.p, &g.live[i]);
            g.live[i] = g.live[--g.n];
            g.value[i] = g.value[g.n];
        }
        assert_true(rc == OK || rc == ERR_NOMEM);
        g.n_refused += rc != OK;
        for (int k = 0; k < g.n; k++)
            bytes += (size_t)g.live[k].cap_tok * kv_token_bytes(&shape);
        kv_pool_stat(g.p, &st);
        assert_int_equal(st.reserved_tok, g.sum);
        assert_int_equal(st.reserved_bytes, bytes);
        assert_int_equal(st.n_live, g.n);
        assert_int_equal(st.n_refused_total, g.n_refused);
        assert_true(g.sum <= limit && bytes <= st.pool_bytes);
        if (n_larges == N_LIVE) /* memory for everyone: only the limit refuses */
            assert_true(rc == OK || g.sum + want > limit);
    }
    assert_true(g.n_grown > 50 && g.n_refused > 50);
    assert_true((g.n_enlarged > 20) == (alloc->paged || alloc->several_sizes));
    assert_int_equal(st.n_moved_total + st.n_extended_total,
                     alloc->several_sizes ? g.n_enlarged : 0);
    assert_true((st.migrated_bytes_total > 0) == alloc->several_sizes);
    while (g.n > 0)
        kv_release(g.p, &g.live[--g.n]);
    kv_pool_stat(g.p, &st);
    assert_true(st.reserved_tok == 0 && st.reserved_bytes == 0 && st.n_live == 0);
    kv_pool_close(&g.p);
}

TEST(test_grow)
{
    for (int i = 0; kv_allocs[i]; i++) {
        grow_at_random(kv_allocs[i], N_LIVE, 3 * MAX_TOK + 4);
        grow_at_random(kv_allocs[i], 4, INT64_MAX); /* the allocator refuses */
    }
}

/* What is to be copied is what is there, however much is reserved. */
TEST(test_only_what_is_there_is_copied)
{
    struct kv_pool *p = open_pool("odma", 1 << 20);
    size_t token = kv_token_bytes(&shape);
    struct kv_slot r, right;
    struct kv_stat st;

    assert_ok(reserve(p, 16, &r));
    assert_ok(reserve(p, 16, &right)); /* so that the first cannot grow where it is */
    assert_int_equal(r.cap_tok, 16);
    assert_ok(kv_grow(p, &right, 16, 17)); /* to its right all is free */
    assert_int_equal(right.cap_tok, 32);
    kv_pool_stat(p, &st);
    assert_int_equal(st.n_extended_total, 1);
    assert_int_equal(st.migrated_bytes_total, 16 * token);
    assert_ok(kv_grow(p, &r, 5, 17));
    assert_int_equal(r.cap_tok, 32);
    kv_pool_stat(p, &st);
    assert_int_equal(st.n_moved_total, 1);
    assert_int_equal(st.migrated_bytes_total, (5 + 16) * token);
    kv_release(p, &r);
    kv_release(p, &right);
    kv_pool_close(&p);
}

/* What was predicted decides what a sequence gets, and counts towards the limit; with a table of
 * blocks only the next token does. */
TEST(test_need)
{
    static const struct {
        const char *alloc;
        int64_t cap, n_tok, large_cap;
    } all[] = {{"static", MAX_TOK, 20, MAX_TOK},
               {"paged", 16, 11, 16},
               {"s3", 32, 20, MAX_TOK},
               {"odma", 32, 20, MAX_TOK}};
    struct kv_need need = {.prompt_tok = 10, .gen_tok = 10};

    for (int i = 0; i < 4; i++) {
        struct kv_pool *p = open_pool(all[i].alloc, 1 << 20);
        struct kv_slot r;

        need.large = false;
        assert_ok(kv_reserve(p, &need, &r));
        assert_true(r.cap_tok >= 11 && r.cap_tok <= all[i].cap);
        assert_int_equal(r.n_tok, all[i].n_tok);
        kv_release(p, &r);
        need.large = true;
        assert_true(kv_bucket(p, &need) == (i == 3 ? 2 : i == 2 ? 5 : 0));
        assert_ok(kv_reserve(p, &need, &r));
        assert_int_equal(r.cap_tok, all[i].large_cap);
        kv_release(p, &r);
        kv_pool_close(&p);
    }
}

static void refused(const struct kv_shape *sh, const struct kv_pool_opts *o, int rc,
                    const char *why)
{
    struct kv_pool *p;

    assert_err(kv_pool_open(&p, sh, o), rc, why);
    assert_null(p);
}

TEST(test_refusals)
{
    struct kv_shape bad = shape;
    struct kv_pool_opts o = opts("statik", 1 << 20);
    struct kv_slot r;
    struct kv_pool *p;
    size_t bytes;

    refused(&shape, &o, ERR_NOTFOUND, "static");
    o = opts(NULL, 100);
    refused(&shape, &o, ERR_NOMEM, "no sequence");
    o = opts("paged", 4 * 16 * kv_token_bytes(&shape));
    refused(&shape, &o, ERR_NOMEM, "no sequence of 80 tokens");
    o.block_tok = 48;
    refused(&shape, &o, ERR_ARG, "48 tokens: expected a power of two");
    o = opts(NULL, 1 << 20);
    o.max_tok = INT64_MAX;
    refused(&shape, &o, ERR_LIMIT, "overflow");
    o.max_tok = INT64_C(1) << 40;
    assert_err(kv_pool_bytes(&bytes, &shape, &o, INT64_C(1) << 40), ERR_LIMIT,
               "overflow");
    o = opts(NULL, 1 << 20);
    bad.vec_bytes = 0;
    refused(&bad, &o, ERR_ARG, "vec_bytes 0");
    p = open_pool(NULL, 1 << 20);
    assert_err(reserve(p, MAX_TOK + 1, &r), ERR_LIMIT, "longest is 80");
    assert_err(reserve(p, 0, &r), ERR_ARG, "0 tokens");
    assert_ok(reserve(p, 2, &r));
    kv_pool_limit(p, 5);
    assert_err(kv_grow(p, &r, 2, MAX_TOK + 1), ERR_LIMIT, "longest is 80");
    assert_err(kv_grow(p, &r, 2, 6), ERR_NOMEM, "2 of 5 tokens are reserved, 4 more");
    assert_ok(kv_grow(p, &r, 2, 5));
    assert_ok(kv_grow(p, &r, 2, 1)); /* it has more already */
    assert_int_equal(r.n_tok, 5);
    kv_release(p, &r);
    kv_pool_close(&p);
}

/* As many sequences of the longest as were asked for have memory at once. */
TEST(test_bytes)
{
    for (int i = 0; kv_allocs[i]; i++)
        for (int64_t max_tok = 1; max_tok < 100; max_tok += 13) {
            struct kv_pool_opts o = opts(kv_allocs[i]->name, 0);
            struct kv_slot r[5];
            struct kv_pool *p;

            o.max_tok = max_tok;
            o.bounds = NULL;
            assert_ok(kv_pool_bytes(&o.budget_bytes, &shape, &o, 5));
            assert_ok(kv_pool_open(&p, &shape, &o));
            for (int k = 0; k < 5; k++)
                assert_ok(reserve(p, max_tok, &r[k]));
            for (int k = 0; k < 5; k++)
                kv_release(p, &r[k]);
            kv_pool_close(&p);
            o.budget_bytes--;
            assert_ok(kv_pool_open(&p, &shape, &o));
            for (int k = 0; k < 4; k++)
                assert_ok(reserve(p, max_tok, &r[k]));
            assert_int_equal(reserve(p, max_tok, &r[4]), ERR_NOMEM);
            for (int k = 0; k < 4; k++)
                kv_release(p, &r[k]);
            kv_pool_close(&p);
        }
}

/* Touching by parts reaches every page and nothing behind the pool (a crash, under ASan).
 */
TEST(test_touch)
{
    const size_t bytes = (1 << 20) + 12345;
    struct kv_pool *p;
    size_t before, after;

    p = open_pool(NULL, 64 << 20);
    before = mem_rss_bytes();
    for (int i = 0; i < 3; i++)
        kv_pool_touch(p, i, 3);
    after = mem_rss_bytes();
    kv_pool_close(&p);
    assert_true(after > before + (48 << 20));
    p = open_pool(NULL, bytes);
    for (int i = 0; i < 7; i++)
        kv_pool_touch(p, i, 7);
    kv_pool_close(&p);
}

/* Exactly one byte of each page of each part becomes 0. */
TEST(test_touch_by_pages)
{
    const size_t bytes = (1 << 20) + 12345;
    struct kv_pool *p = open_pool(NULL, bytes);
    size_t got, n_zero = 0, n_want = 0;
    char *base;
    void *start;

    kv_pool_memory(p, &start, &got);
    assert_int_equal(got, bytes);
    base = start;
    memset(base, 1, bytes);
    for (size_t i = 0; i < 7; i++) {
        size_t lo = bytes / 7 * i, hi = i == 6 ? bytes : bytes / 7 * (i + 1);

        kv_pool_touch(p, (int)i, 7);
        for (size_t at = lo; at < hi; at += 4096, n_want++)
            assert_int_equal(base[at], 0);
    }
    for (size_t i = 0; i < bytes; i++)
        n_zero += base[i] == 0;
    assert_int_equal(n_zero, n_want);
    kv_pool_close(&p);
}

/* What is counted, and the memory's descriptor. */
TEST(test_counts)
{
    struct kv_pool_opts o = opts("odma", 1 << 20);
    uint64_t t0 = clock_ns();
    struct kv_pool *p;
    struct kv_slot r[2];
    struct kv_stat st;

    assert_ok(kv_pool_open(&p, &shape, &o));
    assert_int_equal(kv_pool_fd(p), -1);
    for (int i = 0; i < 200; i++) {
        assert_ok(reserve(p, 16, &r[0]));
        assert_ok(reserve(p, 16, &r[1]));
        assert_ok(kv_grow(p, &r[0], 16, 17)); /* moves */
        assert_ok(kv_grow(p, &r[0], 16, 20)); /* has room */
        kv_release(p, &r[0]);
        kv_release(p, &r[1]);
    }
    assert_err(reserve(p, 0, &r[0]), ERR_ARG,
               "0 tokens"); /* no refusal for want of memory */
    kv_pool_limit(p, 1);
    assert_int_equal(reserve(p, 2, &r[0]), ERR_NOMEM);
    kv_pool_stat(p, &st);
    assert_true(st.n_reserved_total == 400 && st.n_refused_total == 1 &&
                st.n_alloc_total == 1000 && st.n_moved_total == 200 &&
                st.n_extended_total == 0 && st.n_live == 0);
    assert_true(st.alloc_ns_total > 0 && st.migrate_ns_total > 0 &&
                (uint64_t)(st.alloc_ns_total + st.migrate_ns_total) <= clock_ns() - t0);
    kv_pool_close(&p);
    o.shared = true;
    assert_ok(kv_pool_open(&p, &shape, &o));
    assert_true(kv_pool_fd(p) >= 0);
    kv_pool_close(&p);
}

/* Sizes up to half of what a number holds. */
TEST(test_sizes_at_their_bounds)
{
    const struct kv_shape least = {.n_layers = 1, .n_kv_heads = 1, .vec_bytes = 1};
    struct kv_pool_opts o = {.max_tok = 1};
    struct kv_pool *p;
    size_t bytes;

    assert_ok(kv_pool_bytes(&bytes, &least, &o, 1));
    assert_int_equal(bytes, 64);
    assert_ok(kv_pool_bytes(&bytes, &least, &o, (INT64_C(1) << 56) - 1));
    assert_int_equal(bytes, (INT64_C(1) << 62) - 64);
    assert_err(kv_pool_bytes(&bytes, &least, &o, INT64_C(1) << 56), ERR_LIMIT,
               "overflow");
    o.max_tok = INT64_MAX; /* 2^64 - 2 bytes, without the rest of a line */
    assert_err(kv_pool_bytes(&bytes, &least, &o, 1), ERR_LIMIT, "overflow");
    o.alloc = "odma"; /* without the rest of the alignment */
    assert_err(kv_pool_bytes(&bytes, &least, &o, 1), ERR_LIMIT, "overflow");
    for (int i = 0; i < 4; i++) {
        struct kv_shape s = {i != 0, i != 1, i != 2};

        o = (struct kv_pool_opts){.budget_bytes = 1 << 20, .max_tok = i != 3};
        assert_err(kv_pool_open(&p, &s, &o), ERR_ARG, "expected all >= 1");
    }
}

struct seen {
    struct kv_slot r[8];
    int n;
};

static void see(void *ctx, const struct kv_slot *r)
{
    struct seen *s = ctx;

    assert_true(s->n < 8);
    s->r[s->n++] = *r;
}

/* Every slot, or block, that is laid out the same whoever has it. */
TEST(test_each)
{
    size_t slot = (kv_token_bytes(&shape) * MAX_TOK + 63) & ~(size_t)63, bytes;
    struct seen s = {.n = 0};
    struct kv_pool *p = open_pool(NULL, 3 * slot + slot / 2);
    struct kv_slot r;
    void *base;

    kv_pool_memory(p, &base, &bytes);
    assert_int_equal(bytes, 3 * slot + slot / 2);
    kv_pool_each(p, see, &s);
    assert_int_equal(s.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(s.r[i].base, (char *)base + (size_t)i * slot);
        assert_ok(reserve(p, MAX_TOK, &r));
        assert_ptr_equal(r.base, s.r[i].base);
        assert_int_equal(r.cap_tok, s.r[i].cap_tok);
        assert_int_equal(r.run_bytes, s.r[i].run_bytes);
        assert_int_equal(r.head_stride, s.r[i].head_stride);
        assert_int_equal(r.layer_stride, s.r[i].layer_stride);
        assert_int_equal(r.slot, s.r[i].slot);
    }
    kv_pool_close(&p);
    s.n = 0;
    p = open_pool("paged", 5 * 16 * kv_token_bytes(&shape));
    kv_pool_each(p, see, &s);
    assert_int_equal(s.n, 5);
    assert_ok(reserve(p, MAX_TOK, &r));
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(token_at(&s.r[r.blocks[i]], 1, 1, 0, 0),
                         token_at(&r, 1, 1, 0, 16 * i));
    kv_pool_close(&p);
}

/* Slots of several sizes: every byte of a head is in the head's part of the pool, of whoever has
 * it, and a part holds nothing else. */
static void heads_have_parts(const char *alloc)
{
    struct kv_pool *p = open_pool(alloc, 1 << 20);
    struct seen s = {.n = 0};
    struct kv_stat st;
    struct kv_slot r;
    size_t bytes, part;
    int64_t tok = 0;
    char *base;
    void *start;

    kv_pool_memory(p, &start, &bytes);
    base = start;
    kv_pool_stat(p, &st);
    part = (size_t)st.pool_tok * 3 * 2 * 12; /* layers, keys and values */
    kv_pool_each(p, see, &s);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.r[0].cap_tok, st.pool_tok);
    assert_int_equal(s.r[0].run_bytes * 3 * 2, part);
    assert_true(part * 2 <= bytes);
    for (int64_t n = 1; reserve(p, n, &r) == OK; n = n * 2 % MAX_TOK) {
        assert_int_equal(r.run_bytes, r.cap_tok * 12);
        for (int i = 0; i < 2 * 3; i++) {
            int head = i / 3, layer = i % 3;
            char *memory = kv_head_at(&r, layer, head);

            assert_ptr_equal(kv_head_at(&s.r[0], 0, head), base + (size_t)head * part);
            assert_true(memory >= base + (size_t)head * part &&
                        memory + 2 * r.run_bytes <= base + (size_t)(head + 1) * part);
        }
        tok += r.cap_tok;
    }
    err_clear();
    assert_true(tok > st.pool_tok / 2);
    kv_pool_close(&p);
}

TEST(test_heads_have_parts)
{
    int n = 0;

    for (int i = 0; kv_allocs[i]; i++)
        if (kv_allocs[i]->several_sizes) {
            heads_have_parts(kv_allocs[i]->name);
            n++;
        }
    assert_true(n >= 3);
}

TEST(test_alloc_fail)
{
    for (int i = 0; kv_allocs[i]; i++) {
        struct kv_pool_opts o = opts(kv_allocs[i]->name, 1 << 20);
        struct kv_pool *p = NULL;
        long n = 0;

        for (o.shared = i % 2; !p; n++) {
            int rc;

            mem_fail_after(n, 1);
            rc = kv_pool_open(&p, &shape, &o);
            mem_fail_after(-1, 0);
            assert_int_equal(rc, p ? OK : ERR_NOMEM);
        }
        assert_true(n > 3); /* pool, allocator, mapping */
        kv_pool_close(&p);
        assert_int_equal(mem_used_bytes(MEM_KV), 0);
    }
}
