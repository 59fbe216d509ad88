/* Every allocator of contiguous memory: slots never overlap, a released one is used again,
 * one that grows keeps its keys and values, running out is ERR_NOMEM, totals add up, and no
 * failed allocation leaks. */
#include "tests/support/test.h"

#include "kv/alloc.h"
#include "kv/kv.h"

static const struct kv_shape shape = {
    .n_layers = 3, .n_kv_heads = 2, .head_dim = 6, .elem_bytes = 2};
#define MAX_TOK 10

static void test_token_bytes(void **state)
{
    (void)state;
    assert_int_equal(kv_token_bytes(&shape), 3 * 2 * 2 * 6 * 2);
}

static void test_layout(void **state)
{
    struct kv_pool *p;
    struct kv_slot r;

    (void)state;
    assert_ok(kv_pool_open(&p, NULL, &shape, 1 << 20, MAX_TOK, -1));
    assert_ok(kv_reserve(p, MAX_TOK, &r));
    assert_int_equal(r.head_bytes, r.cap_tok * 6 * 2);
    assert_int_equal((uintptr_t)r.base % 64, 0);
    /* [layer][kv_head][K|V] */
    assert_ptr_equal(kv_at(&r, 0, 0, 0), r.base);
    assert_ptr_equal(kv_at(&r, 0, 0, 1), (char *)r.base + r.head_bytes);
    assert_ptr_equal(kv_at(&r, 0, 1, 0), (char *)r.base + 2 * r.head_bytes);
    assert_ptr_equal(kv_at(&r, 1, 0, 0), (char *)r.base + 4 * r.head_bytes);
    kv_release(p, &r);
    assert_null(r.base);
    kv_release(p, &r); /* nothing reserved: nothing happens */
    kv_pool_close(&p);
    assert_null(p);
    kv_pool_close(&p);
}

/* Reserve and release at random; each live slot is filled with its own byte, which must
 * still be there when it is given back. */
static void churn(const struct kv_alloc *alloc)
{
    struct kv_slot live[64];
    struct kv_pool *p;
    struct kv_stat st;
    struct rng rng;
    int n = 0, refused = 0;

    rng_init(&rng, test_seed(), "churn");
    assert_ok(kv_pool_open(&p, alloc->name, &shape, 16 * MAX_TOK * 144, MAX_TOK, -1));
    for (int step = 0; step < 2000; step++) {
        if (n < 64 && rng_below(&rng, 3) > 0) {
            int64_t want = 1 + (int64_t)rng_below(&rng, MAX_TOK);
            int rc = kv_reserve(p, want, &live[n]);

            if (rc == OK) {
                assert_true(live[n].cap_tok >= want);
                memset(live[n].base, 1 + step % 255, 12 * live[n].head_bytes);
                n++;
            } else {
                assert_int_equal(rc, ERR_NOMEM);
                refused++;
            }
        } else if (n > 0) {
            int i = (int)rng_below(&rng, (uint64_t)n);
            const unsigned char *b = live[i].base;

            for (size_t k = 1; k < 12 * live[i].head_bytes; k++)
                assert_int_equal(b[k], b[0]);
            kv_release(p, &live[i]);
            live[i] = live[--n];
        }
        kv_pool_stat(p, &st);
        assert_int_equal(st.n_live, n);
        assert_int_equal(st.n_refused_total, refused);
        assert_true(st.reserved_bytes <= st.pool_bytes);
    }
    assert_true(refused > 0); /* the pool was too small on purpose */
    while (n > 0)
        kv_release(p, &live[--n]);
    kv_pool_stat(p, &st);
    assert_int_equal(st.reserved_bytes, 0);
    assert_true(st.n_reserved_total > 100);
    kv_pool_close(&p);
}

static void test_churn(void **state)
{
    (void)state;
    for (int i = 0; kv_allocs[i]; i++)
        if (!kv_allocs[i]->paged)
            churn(kv_allocs[i]);
}

struct growing {
    struct kv_pool *p;
    struct kv_slot live[16];
    int16_t value[16]; /* what was written into it */
    int n, n_grown, n_moved, n_refused;
    int64_t sum;
};

/* Write or check the elements of the slot's tokens [from, n_tok): each is different in every
 * run of a head, and for every `value`. */
static void each_element(const struct kv_slot *r, int64_t from, int16_t value, bool write)
{
    for (int layer = 0; layer < shape.n_layers; layer++)
        for (int h = 0; h < 2 * shape.n_kv_heads; h++) {
            int16_t *run = kv_at(r, layer, h / 2, h % 2);

            for (int64_t i = from * shape.head_dim; i < r->n_tok * shape.head_dim; i++) {
                int16_t want = (int16_t)(value * 1009 + (layer * 4 + h) * 61 + i);

                if (write)
                    run[i] = want;
                assert_int_equal(run[i], want);
            }
        }
}

static int reserve_one(struct growing *g, int64_t want)
{
    int rc;

    if (g->n == 16)
        return OK;
    rc = kv_reserve(g->p, want, &g->live[g->n]);
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
    int rc = kv_grow(g->p, r, want);

    if (rc == OK && want > before.n_tok) {
        assert_int_equal(r->n_tok, want);
        g->n_grown++;
        g->n_moved += r->cap_tok > before.cap_tok;
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
static void grow_at_random(const struct kv_alloc *alloc)
{
    const int64_t limit = 3 * MAX_TOK + 4;
    struct growing g = {.n = 0};
    struct kv_stat st;
    struct rng rng;

    rng_init(&rng, test_seed(), "grow");
    assert_ok(kv_pool_open(&g.p, alloc->name, &shape, 16 * MAX_TOK * 144, MAX_TOK, -1));
    kv_pool_stat(g.p, &st);
    assert_true(st.limit_tok == INT64_MAX);
    kv_pool_limit(g.p, limit);
    for (int step = 0; step < 3000; step++) {
        int64_t want = 1 + (int64_t)rng_below(&rng, MAX_TOK);
        int i = g.n > 0 ? (int)rng_below(&rng, (uint64_t)g.n) : 0, rc = OK;
        int what = g.n > 0 ? (int)rng_below(&rng, 4) : 0;

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
        kv_pool_stat(g.p, &st);
        assert_int_equal(st.reserved_tok, g.sum);
        assert_int_equal(st.n_refused_total, g.n_refused);
        assert_true(g.sum <= limit);
        assert_true(rc == OK || g.sum + want > limit); /* not without need */
    }
    assert_true(g.n_grown > 100 && g.n_refused > 100);
    assert_true((g.n_moved > 100) ==
                (strcmp(alloc->name, "s3") == 0)); /* others: large */
    while (g.n > 0)
        kv_release(g.p, &g.live[--g.n]);
    kv_pool_stat(g.p, &st);
    assert_int_equal(st.reserved_tok, 0);
    kv_pool_close(&g.p);
}

static void test_grow(void **state)
{
    (void)state;
    for (int i = 0; kv_allocs[i]; i++)
        if (!kv_allocs[i]->paged)
            grow_at_random(kv_allocs[i]);
}

static void test_refusals(void **state)
{
    struct kv_shape bad = shape;
    struct kv_slot r;
    struct kv_pool *p;

    (void)state;
    assert_err(kv_pool_open(&p, "statik", &shape, 1 << 20, MAX_TOK, -1), ERR_NOTFOUND,
               "static");
    assert_null(p);
    assert_err(kv_pool_open(&p, "paged", &shape, 1 << 20, MAX_TOK, -1), ERR_UNSUPPORTED,
               "contiguous");
    assert_null(p);
    assert_err(kv_pool_open(&p, NULL, &shape, 100, MAX_TOK, -1), ERR_NOMEM,
               "no sequence");
    assert_err(kv_pool_open(&p, NULL, &shape, 1 << 20, INT64_MAX, -1), ERR_LIMIT,
               "overflow");
    bad.head_dim = 0;
    assert_err(kv_pool_open(&p, NULL, &bad, 1 << 20, MAX_TOK, -1), ERR_ARG, "head_dim 0");
    bad = shape;
    bad.elem_bytes = 3;
    assert_err(kv_pool_open(&p, NULL, &bad, 1 << 20, MAX_TOK, -1), ERR_ARG, "elem_bytes");
    assert_ok(kv_pool_open(&p, NULL, &shape, 1 << 20, MAX_TOK, -1));
    assert_err(kv_reserve(p, MAX_TOK + 1, &r), ERR_LIMIT, "longest is 10");
    assert_err(kv_reserve(p, 0, &r), ERR_ARG, "0 tokens");
    assert_ok(kv_reserve(p, 2, &r));
    kv_pool_limit(p, 5);
    assert_err(kv_grow(p, &r, MAX_TOK + 1), ERR_LIMIT, "longest is 10");
    assert_err(kv_grow(p, &r, 6), ERR_NOMEM, "2 of 5 tokens are reserved, 4 more");
    assert_ok(kv_grow(p, &r, 5));
    assert_ok(kv_grow(p, &r, 1)); /* it has more already */
    assert_int_equal(r.n_tok, 5);
    kv_release(p, &r);
    kv_pool_close(&p);
}

/* Touching by parts reaches every page and nothing behind the pool (a crash, under ASan).
 */
static void test_touch(void **state)
{
    const size_t bytes = (1 << 20) + 12345;
    struct kv_pool *p;
    size_t before, after;

    (void)state;
    assert_ok(kv_pool_open(&p, NULL, &shape, 64 << 20, MAX_TOK, -1));
    before = mem_rss_bytes();
    for (int i = 0; i < 3; i++)
        kv_pool_touch(p, i, 3);
    after = mem_rss_bytes();
    kv_pool_close(&p);
    assert_true(after > before + (48 << 20));
    assert_ok(kv_pool_open(&p, NULL, &shape, bytes, MAX_TOK, -1));
    for (int i = 0; i < 7; i++)
        kv_pool_touch(p, i, 7);
    kv_pool_close(&p);
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

/* Every slot there can be, each once, and the pool is as it was. */
static void test_each(void **state)
{
    size_t slot = (kv_token_bytes(&shape) * MAX_TOK + 63) & ~(size_t)63, bytes;
    struct kv_slot r[3];
    struct seen s = {.n = 0};
    struct kv_pool *p;
    struct kv_stat st;
    void *base;

    (void)state;
    assert_ok(kv_pool_open(&p, NULL, &shape, 3 * slot + slot / 2, MAX_TOK, -1));
    kv_pool_memory(p, &base, &bytes);
    assert_int_equal(bytes, 3 * slot + slot / 2);
    assert_ok(kv_pool_each(p, see, &s));
    assert_int_equal(s.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(s.r[i].base, (char *)base + (size_t)i * slot);
        assert_ok(kv_reserve(p, MAX_TOK, &r[i]));
        assert_ptr_equal(r[i].base, s.r[i].base);
        assert_int_equal(r[i].cap_tok, s.r[i].cap_tok);
        assert_int_equal(r[i].head_bytes, s.r[i].head_bytes);
        assert_int_equal(r[i].n_kv_heads, s.r[i].n_kv_heads);
        assert_int_equal(r[i].slot, s.r[i].slot);
    }
    kv_pool_stat(p, &st);
    assert_int_equal(st.n_reserved_total, 3);
    assert_int_equal(st.n_refused_total, 0);
    assert_err(kv_pool_each(p, see, &s), ERR_STATE, "3 sequences");
    for (int i = 0; i < 3; i++)
        kv_release(p, &r[i]);
    mem_fail_after(0, 1);
    assert_int_equal(kv_pool_each(p, see, &s), ERR_NOMEM);
    mem_fail_after(-1, 0);
    assert_int_equal(s.n, 3);
    kv_pool_close(&p);
}

static void test_alloc_fail(void **state)
{
    struct kv_pool *p;
    long n = 0;

    (void)state;
    for (;; n++) {
        int rc;

        mem_fail_after(n, 1);
        rc = kv_pool_open(&p, NULL, &shape, 1 << 20, MAX_TOK, -1);
        mem_fail_after(-1, 0);
        if (rc == OK)
            break;
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(p);
    }
    assert_true(n >= 3); /* pool, slots, mapping */
    kv_pool_close(&p);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_bytes), cmocka_unit_test(test_layout),
        cmocka_unit_test(test_churn),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_touch),       cmocka_unit_test(test_alloc_fail),
        cmocka_unit_test(test_each),        cmocka_unit_test(test_grow),
    };

    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
