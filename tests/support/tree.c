#include "tests/support/tree.h"

#include <limits.h>

struct topo_tree *tree_open(const char *spec)
{
    struct topo_machine *m;
    struct topo_tree *t;
    char note[256];

    assert_ok(topo_machine_open(&m, spec));
    assert_ok(topo_tree_open(&t, m, NULL, note, sizeof(note)));
    assert_string_equal(note, "");
    assert_int_equal(t->n_pus, m->n_pus);
    return t;
}

void tree_close(struct topo_tree *t)
{
    struct topo_machine *m = (struct topo_machine *)t->machine;

    mem_free(t);
    topo_machine_close(&m);
}

void tree_blocks(const struct topo_tree *t, int level, int *block)
{
    int span = topo_tree_span(t, level);

    for (int i = 0; i < t->machine->n_pus; i++)
        block[i] = -1;
    for (int i = 0; i < t->n_pus; i++)
        block[t->pus[i]] = i / span;
}

/* ---- what every tree must satisfy ---- */

static int member(const struct topo_pu *p, int kind)
{
    switch (kind) {
    case TOPO_PACKAGE:
        return p->package;
    case TOPO_NODE:
        return p->node;
    case TOPO_L3:
        return p->l3;
    case TOPO_CLUSTER:
        return p->cluster;
    case TOPO_L2:
        return p->l2;
    case TOPO_CORE:
        return p->core;
    default:
        return -1;
    }
}

/* Two CPUs are below one node exactly if they share what the node is. */
static void check_kind(const struct topo_tree *t, int level, int kind)
{
    int span = topo_tree_span(t, level);

    for (int i = 0; i < t->n_pus; i++)
        for (int k = 0; k < t->n_pus; k += span) {
            int a = member(&t->machine->pus[t->pus[i]], kind);
            int b = member(&t->machine->pus[t->pus[k]], kind);

            assert_true(a >= 0 && b >= 0);
            if ((a == b) != (i / span == k / span))
                fail_msg("level %d, kind %d: CPUs %d and %d", level, kind, t->pus[i],
                         t->pus[k]);
        }
}

static int smallest(const struct topo_tree *t, int from, int n)
{
    int least = INT_MAX;

    for (int i = from; i < from + n; i++)
        least = t->pus[i] < least ? t->pus[i] : least;
    return least;
}

static void check_order(const struct topo_tree *t, int level)
{
    int span = topo_tree_span(t, level), below = topo_tree_span(t, level + 1);

    for (int at = 0; at < t->n_pus; at += span)
        for (int c = at + below; c < at + span; c += below)
            assert_true(smallest(t, c - below, below) < smallest(t, c, below));
}

void tree_check(const struct topo_tree *t)
{
    int product = 1, last = t->n_levels - 1;
    char *seen = mem_new(MEM_TEST, (size_t)t->machine->n_pus, 1);

    assert_non_null(seen);
    assert_in_range(t->n_levels, 2, TOPO_LEVELS_MAX);
    for (int l = 0; l <= last; l++) {
        assert_true(t->levels[l].kinds != 0);
        assert_int_equal(topo_tree_n_nodes(t, l), product);
        assert_int_equal(topo_tree_span(t, l) * product, t->n_pus);
        assert_true(l == last ? t->levels[l].arity == 0 : t->levels[l].arity >= 1);
        assert_true(t->levels[l].original >= t->levels[l].arity);
        product *= l < last ? t->levels[l].arity : 1;
        for (int kind = TOPO_PACKAGE; kind < TOPO_PU; kind *= 2)
            if ((t->levels[l].kinds & kind) && kind != TOPO_GROUP)
                check_kind(t, l, kind);
        if (l < last)
            check_order(t, l);
    }
    assert_int_equal(product, t->n_pus);
    assert_true(t->levels[0].kinds & TOPO_MACHINE);
    assert_true(t->levels[last].kinds & TOPO_PU);
    for (int i = 0; i < t->n_pus; i++) {
        assert_in_range(t->pus[i], 0, t->machine->n_pus - 1);
        assert_false(seen[t->pus[i]]);
        seen[t->pus[i]] = 1;
    }
    mem_free(seen);
}

const char *tree_levels(const struct topo_tree *t)
{
    static char text[1024];
    size_t at = 0;

    for (int l = 0; l < t->n_levels; l++) {
        char what[64];

        topo_kinds_print(t->levels[l].kinds, what, sizeof(what));
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", l ? " " : "", what);
        if (l < t->n_levels - 1)
            at +=
                (size_t)snprintf(text + at, sizeof(text) - at, "/%d", t->levels[l].arity);
    }
    return text;
}

/* ---- at random ---- */

/* "(indexes=...)": CPU numbers in order, siblings half the machine apart, or shuffled. */
static void random_numbers(struct rng *rng, char *out, size_t n, int n_pus, int smt)
{
    int number[1024];
    size_t at;

    out[0] = '\0';
    if (rng_below(rng, 3) == 0 || n_pus > 1024)
        return;
    if (rng_below(rng, 2) == 0) {
        snprintf(out, n, "(indexes=%d*%d:%d*1)", smt, n_pus / smt, n_pus / smt);
        return;
    }
    at = (size_t)snprintf(out, n, "(indexes=");
    for (int i = 0; i < n_pus; i++) {
        int k = (int)rng_below(rng, (uint64_t)i + 1);

        number[i] = number[k];
        number[k] = i;
    }
    for (int i = 0; i < n_pus; i++)
        at += (size_t)snprintf(out + at, n - at, "%s%d", i ? "," : "", number[i]);
    snprintf(out + at, n - at, ")");
}

const char *tree_random_spec(struct rng *rng, int max_pus)
{
    static const char *const names[] = {"package", "node", "l3", "l2", "core", "pu"};
    static char spec[8192];
    int arity[6], n;
    size_t at;

    do {
        n = 1;
        for (int l = 0; l < 6; l++) {
            int most = l == 4 ? 12 : 4;

            arity[l] = 1 + (int)rng_below(rng, (uint64_t)most);
            n *= arity[l];
        }
    } while (n < 2 || n > max_pus);
    at = (size_t)snprintf(spec, sizeof(spec), "synthetic:");
    for (int l = 0; l < 6; l++)
        at += (size_t)snprintf(spec + at, sizeof(spec) - at, "%s%s:%d", l ? " " : "",
                               names[l], arity[l]);
    random_numbers(rng, spec + at, sizeof(spec) - at, n, arity[5]);
    return spec;
}

struct topo_tree *tree_random_group(struct rng *rng, const struct topo_tree *t,
                                    int min_depth)
{
    struct topo_tree *g;

    for (int tries = 0; tries < 200 && t->n_levels > min_depth; tries++) {
        int depth = min_depth + (int)rng_below(rng, (uint64_t)(t->n_levels - min_depth));
        int arity = t->levels[depth - 1].arity;
        int n = 2 + (int)rng_below(rng, (uint64_t)arity);
        int stride = 1 + (int)rng_below(rng, (uint64_t)arity);

        if (topo_tree_group(&g, t, n, stride, depth) == OK)
            return g;
    }
    return NULL;
}

struct topo_tree *tree_random_remove(struct rng *rng, const struct topo_tree *t)
{
    struct topo_tree *r;

    for (int tries = 0; tries < 200; tries++) {
        int depth = 1 + (int)rng_below(rng, (uint64_t)(t->n_levels - 1));
        int n = 1 + (int)rng_below(rng, (uint64_t)t->levels[depth - 1].arity);

        if (topo_tree_remove(&r, t, n, depth) == OK)
            return r;
    }
    return NULL;
}
