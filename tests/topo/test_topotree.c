/* group(), remove() and the header hash: what holds for every tree, and the paper's
 * numbers. */
#include "tests/support/tree.h"

#include <limits.h>

#define TREES 150 /* random ones */

static struct topo_tree *flat(int n)
{
    char spec[32];

    snprintf(spec, sizeof(spec), "synthetic:pu:%d", n);
    return tree_open(spec);
}

/* ---- group ---- */

/* Tile c children with progressions of n at a stride: the smallest one left must begin
 * one, so there is at most one way. owner[i] = the tile of child i. */
static bool tiles(int c, int n, int stride, int *owner)
{
    int n_tiles = 0;

    for (int i = 0; i < c; i++)
        owner[i] = -1;
    for (int i = 0; i < c; i++) {
        if (owner[i] >= 0)
            continue;
        for (int j = 0; j < n; j++) {
            int at = i + j * stride;

            if (at >= c || owner[at] >= 0)
                return false;
            owner[at] = n_tiles;
        }
        n_tiles++;
    }
    return true;
}

TEST(group_is_legal_where_progressions_tile)
{
    int n_legal = 0, owner[60], block[60];

    for (int c = 1; c <= 60; c++) {
        struct topo_tree *t = flat(c), *g;

        for (int n = 2; n <= c + 1; n++)
            for (int stride = 1; stride <= c + 1; stride++) {
                if (!tiles(c, n, stride, owner)) {
                    assert_err(topo_tree_group(&g, t, n, stride, 1), ERR_ARG, "tile");
                    assert_null(g);
                    continue;
                }
                assert_ok(topo_tree_group(&g, t, n, stride, 1));
                tree_blocks(g, 1, block);
                assert_memory_equal(block, owner, sizeof(int) * (size_t)c);
                tree_check(g);
                mem_free(g);
                n_legal++;
            }
        tree_close(t);
    }
    assert_int_equal(n_legal, 477); /* sum over c <= 60 and n | c, n >= 2, of d(c / n) */
}

/* The partition that a level is, of t at level l and of g at level k, is the same one. */
static void check_same_nodes(const struct topo_tree *t, int l, const struct topo_tree *g,
                             int k)
{
    int n = t->machine->n_pus, *a = mem_new(MEM_TEST, 2 * (size_t)n, sizeof(*a)),
        *b = a + n;

    assert_non_null(a);
    tree_blocks(t, l, a);
    tree_blocks(g, k, b);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            assert_int_equal(a[i] == a[j], b[i] == b[j]);
    mem_free(a);
}

TEST(group_keeps_leaves_and_parents)
{
    struct rng rng;

    rng_init(&rng, test_seed(), "group");
    for (int i = 0; i < TREES; i++) {
        const char *spec = tree_random_spec(&rng, 96);
        struct topo_tree *t = tree_open(spec), *g;
        int added = 1;

        tree_check(t);
        g = tree_random_group(&rng, t, 1);
        assert_non_null(g); /* >= 2 CPUs: some level has children to group */
        tree_check(g);
        assert_int_equal(g->n_pus, t->n_pus);
        assert_int_equal(g->n_levels, t->n_levels + 1);
        while (g->levels[added].kinds != TOPO_GROUP)
            added++;
        for (int l = 0; l < t->n_levels; l++) {
            int k = l + (l >= added);

            assert_int_equal(t->levels[l].kinds, g->levels[k].kinds);
            check_same_nodes(t, l, g, k);
        }
        mem_free(g);
        tree_close(t);
    }
}

/* Groups at different levels: the order does not matter. */
TEST(groups_commute)
{
    struct rng rng;
    int n_checked = 0;

    rng_init(&rng, test_seed(), "commute");
    for (int i = 0; i < 4 * TREES; i++) {
        struct topo_tree *t = tree_open(tree_random_spec(&rng, 128)), *low, *high, *ab,
                         *ba;
        int n[2], stride[2], depth[2];

        low = tree_random_group(&rng, t, 2);
        high = low ? tree_random_group(&rng, t, 1) : NULL;
        if (low && high && sscanf(low->steps, "group(%d,%d,%d)", n, stride, depth) == 3 &&
            sscanf(high->steps, "group(%d,%d,%d)", n + 1, stride + 1, depth + 1) == 3 &&
            depth[1] < depth[0]) {
            assert_ok(topo_tree_group(&ab, low, n[1], stride[1], depth[1]));
            assert_ok(topo_tree_group(&ba, high, n[0], stride[0], depth[0] + 1));
            assert_int_equal(topo_tree_hash(ab), topo_tree_hash(ba));
            assert_memory_equal(ab->pus, ba->pus, sizeof(int) * (size_t)t->n_pus);
            assert_int_not_equal(topo_tree_hash(ab), topo_tree_hash(low));
            mem_free(ab);
            mem_free(ba);
            n_checked++;
        }
        mem_free(low);
        mem_free(high);
        tree_close(t);
    }
    assert_true(n_checked > 20);
}

/* Pairs, then pairs of pairs; or fours, then pairs inside them. */
TEST(groups_of_groups_commute)
{
    struct topo_tree *t = flat(24), *a, *ab, *b, *ba;

    assert_ok(topo_tree_group(&a, t, 2, 1, 1));
    assert_ok(topo_tree_group(&ab, a, 2, 1, 1));
    assert_ok(topo_tree_group(&b, t, 4, 1, 1));
    assert_ok(topo_tree_group(&ba, b, 2, 1, 2));
    assert_int_equal(topo_tree_hash(ab), topo_tree_hash(ba));
    assert_string_not_equal(ab->steps, ba->steps);
    assert_int_not_equal(topo_tree_hash(a), topo_tree_hash(b));
    mem_free(a);
    mem_free(ab);
    mem_free(b);
    mem_free(ba);
    /* The same shape over other CPUs. */
    assert_ok(topo_tree_group(&a, t, 2, 1, 1));
    assert_ok(topo_tree_group(&b, t, 2, 2, 1));
    assert_string_equal(tree_levels(a), "machine+node/12 group/2 PU");
    assert_int_equal(a->levels[1].arity, b->levels[1].arity);
    assert_int_not_equal(topo_tree_hash(a), topo_tree_hash(b));
    mem_free(a);
    mem_free(b);
    tree_close(t);
}

/* ---- closure ---- */

struct hashes {
    uint64_t *h;
    int64_t n, max;
    bool check;
};

static int collect(void *arg, const struct topo_tree *t)
{
    struct hashes *s = arg;

    assert_true(s->n < s->max);
    s->h[s->n++] = topo_tree_hash(t);
    if (s->check)
        tree_check(t);
    return OK;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void check_closure(struct topo_tree *t, int64_t expected, bool check)
{
    struct hashes s = {.max = expected, .check = check};

    assert_int_equal(topo_tree_closure_count(t), expected);
    s.h = mem_new(MEM_TEST, (size_t)expected, sizeof(*s.h));
    assert_non_null(s.h);
    assert_ok(topo_tree_closure(t, collect, &s));
    assert_int_equal(s.n, expected);
    assert_int_equal(s.h[0], topo_tree_hash(t));
    qsort(s.h, (size_t)s.n, sizeof(*s.h), ascending);
    for (int64_t i = 1; i < s.n; i++)
        assert_true(s.h[i - 1] != s.h[i]);
    mem_free(s.h);
}

TEST(chains_are_counted)
{
    static const struct {
        int c, n;
    } rows[] = {{1, 1},   {2, 1},    {3, 1},     {4, 3},    {8, 12},
                {12, 34}, {16, 60},  {18, 34},   {20, 34},  {24, 286},
                {26, 5},  {32, 360}, {48, 2874}, {64, 2520}};
    static const struct {
        const char *spec;
        int n;
    } machines[] = {{"synthetic:package:4 node:2 core:24 pu:1", 3 * 1 * 286},
                    {"synthetic:package:2 l3:16 core:4 pu:2", 60 * 3},
                    {"synthetic:package:2 core:20 pu:2(indexes=2*40:40*1)", 34}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct topo_tree *t = flat(rows[i].c);

        check_closure(t, rows[i].n, rows[i].c < 32);
        tree_close(t);
    }
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        struct topo_tree *t = tree_open(machines[i].spec);

        check_closure(t, machines[i].n, false);
        tree_close(t);
    }
}

static int stop_at_third(void *arg, const struct topo_tree *t)
{
    (void)t;
    return ++*(int *)arg == 3 ? ERR_CANCELED : OK;
}

TEST(closure_can_be_ended)
{
    struct topo_tree *t = flat(24);
    int n = 0;

    assert_int_equal(topo_tree_closure(t, stop_at_third, &n), ERR_CANCELED);
    assert_int_equal(n, 3);
    tree_close(t);
}

/* ---- remove ---- */

/* All trees that remove() reaches, each by every path; one of each hash is kept. */
static int all_removed(struct topo_tree *t, struct topo_tree **found, int max)
{
    int n = 1, n_paths = 0;

    found[0] = t;
    for (int i = 0; i < n; i++)
        for (int d = 1; d < t->n_levels; d++)
            for (int k = 1; k < found[i]->levels[d - 1].arity; k++) {
                struct topo_tree *r;
                int j = 0;

                assert_ok(topo_tree_remove(&r, found[i], k, d));
                n_paths++;
                while (j < n && topo_tree_hash(found[j]) != topo_tree_hash(r))
                    j++;
                if (j < n) { /* merged: it must be the same tree */
                    assert_string_equal(tree_levels(found[j]), tree_levels(r));
                    assert_memory_equal(found[j]->pus, r->pus,
                                        sizeof(int) * (size_t)r->n_pus);
                    mem_free(r);
                    continue;
                }
                assert_true(n < max);
                found[n++] = r;
            }
    assert_true(n_paths >= n - 1);
    return n;
}

/* Of `full` exactly the PUs whose place among their siblings, on every level, is below
 * what `r` has left. */
static void check_left_most(const struct topo_tree *full, const struct topo_tree *r)
{
    int next = 0, product = 1;

    for (int i = 0; i < full->n_pus; i++) {
        bool kept = true;

        for (int l = full->n_levels - 2, rest = i; l >= 0; l--) {
            kept = kept && rest % full->levels[l].arity < r->levels[l].arity;
            rest /= full->levels[l].arity;
        }
        if (kept)
            assert_int_equal(r->pus[next++], full->pus[i]);
    }
    for (int l = 0; l < r->n_levels - 1; l++) {
        product *= r->levels[l].arity;
        assert_int_equal(r->levels[l].original, full->levels[l].arity);
    }
    assert_int_equal(next, r->n_pus);
    assert_int_equal(product, r->n_pus);
}

static void check_removed(struct topo_tree *t, int expected)
{
    struct topo_tree *found[300];
    int n = all_removed(t, found, 300);

    assert_int_equal(n, expected);
    assert_int_equal(topo_tree_remove_count(t), expected);
    for (int i = 0; i < n; i++) {
        check_left_most(t, found[i]);
        for (int j = 0; j < i; j++)
            assert_false(found[i]->n_pus == found[j]->n_pus &&
                         memcmp(found[i]->pus, found[j]->pus,
                                sizeof(int) * (size_t)found[i]->n_pus) == 0);
    }
    for (int i = 1; i < n; i++)
        mem_free(found[i]);
}

TEST(remove_paths_merge)
{
    struct topo_tree *kunpeng = tree_open("synthetic:package:4 node:2 core:24 pu:1");
    struct topo_tree *rome = tree_open("synthetic:package:2 l3:16 core:4 pu:2");
    struct topo_tree *xeon =
        tree_open("synthetic:package:2 core:20 pu:2(indexes=2*40:40*1)");
    struct topo_tree *ccl, *packages;

    /* Four packages of two nodes are two levels; the paper's 4 x 2 x 6 x 4. */
    assert_ok(topo_tree_group(&ccl, kunpeng, 4, 1, 3));
    assert_string_equal(tree_levels(ccl), "machine/4 package/2 node/6 group/4 core+PU");
    check_removed(ccl, 192);
    check_removed(rome, 256);
    check_removed(xeon, 80);
    assert_ok(topo_tree_remove(&packages, xeon, 1, 3)); /* the siblings: 20 ... 39, ... */
    for (int i = 0; i < packages->n_pus; i++)
        assert_true(packages->pus[i] < 40);
    mem_free(packages);
    mem_free(ccl);
    tree_close(kunpeng);
    tree_close(rome);
    tree_close(xeon);
}

TEST(remove_keeps_the_left_most)
{
    struct rng rng;

    rng_init(&rng, test_seed(), "remove");
    for (int i = 0; i < TREES; i++) {
        struct topo_tree *t = tree_open(tree_random_spec(&rng, 96));
        struct topo_tree *g = tree_random_group(&rng, t, 1), *r = g, *next;

        for (int k = 0; k < 3; k++) {
            next = tree_random_remove(&rng, r);
            if (!next)
                break;
            tree_check(next);
            check_left_most(g, next);
            if (r != g)
                mem_free(r);
            r = next;
        }
        if (r != g)
            mem_free(r);
        mem_free(g);
        tree_close(t);
    }
}

TEST(group_after_remove)
{
    struct topo_tree *t = flat(24), *r, *g;

    assert_ok(topo_tree_remove(&r, t, 6, 1));
    assert_ok(topo_tree_group(&g, r, 3, 2, 1));
    tree_check(g);
    assert_int_equal(g->levels[0].arity, 6);
    assert_int_equal(g->levels[0].original, 8);
    assert_string_equal(g->steps, "remove(6,1) group(3,2,1)");
    mem_free(g);
    mem_free(r);
    tree_close(t);
}

/* ---- limits ---- */

TEST(bad_transformations)
{
    struct topo_tree *t = tree_open("synthetic:node:2 core:6 pu:2"), *out;

    assert_err(topo_tree_group(&out, t, 2, 1, 0), ERR_ARG, "depth 0");
    assert_err(topo_tree_group(&out, t, 2, 1, 4), ERR_ARG, "depth 4");
    assert_err(topo_tree_group(&out, t, 1, 1, 2), ERR_ARG, "group of 1");
    assert_err(topo_tree_group(&out, t, 2, 0, 2), ERR_ARG, "stride of 0");
    assert_err(topo_tree_group(&out, t, -2, -3, 2), ERR_ARG, "group of -2");
    assert_err(topo_tree_group(&out, t, 4, 1, 2), ERR_ARG, "the 6 children");
    assert_err(topo_tree_group(&out, t, 2, INT_MAX, 2), ERR_ARG, "tile");
    assert_err(topo_tree_group(&out, t, INT_MAX, 2, 2), ERR_ARG, "tile");
    assert_err(topo_tree_remove(&out, t, 1, 0), ERR_ARG, "depth 0");
    assert_err(topo_tree_remove(&out, t, 1, INT_MAX), ERR_ARG, "depth");
    assert_err(topo_tree_remove(&out, t, 0, 2), ERR_ARG, "remove 0");
    assert_err(topo_tree_remove(&out, t, 6, 2), ERR_ARG, "1 to 5 of its 6");
    assert_null(out);
    tree_close(t);
}

TEST(many_levels)
{
    struct topo_tree *t = flat(2), *g, *old = t;

    for (int d = 1; d <= TOPO_LEVELS_MAX - 2; d++) {
        assert_ok(topo_tree_group(&g, old, 2, 1, d));
        assert_int_equal(strncmp(g->steps, "group(2,1,1)", 12), 0);
        if (old != t)
            mem_free(old);
        old = g;
    }
    assert_int_equal(old->n_levels, TOPO_LEVELS_MAX);
    tree_check(old);
    assert_true(strlen(old->steps) < sizeof(old->steps));
    assert_string_equal(old->steps + strlen(old->steps) - 3, "...");
    assert_err(topo_tree_group(&g, old, 2, 1, TOPO_LEVELS_MAX - 1), ERR_LIMIT, "levels");
    assert_null(g);
    mem_free(old);
    tree_close(t);
}

static int count(void *arg, const struct topo_tree *t)
{
    (void)t;
    ++*(int *)arg;
    return OK;
}

TEST(memory_runs_out)
{
    struct topo_tree *t = flat(8), *out;
    int n_trees, rc;
    long n = 0;

    mem_fail_after(0, 1);
    assert_int_equal(topo_tree_group(&out, t, 2, 1, 1), ERR_NOMEM);
    assert_null(out);
    mem_fail_after(0, 1);
    assert_int_equal(topo_tree_remove(&out, t, 2, 1), ERR_NOMEM);
    assert_null(out);
    do {
        n_trees = 0;
        mem_fail_after(n, 1);
        rc = topo_tree_closure(t, count, &n_trees);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
    } while (rc != OK && n++ < 100);
    assert_int_equal(n, 11); /* each tree but the first is one allocation */
    assert_int_equal(n_trees, 12);
    tree_close(t);
}
