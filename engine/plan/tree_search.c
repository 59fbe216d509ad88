#include "plan/tree_search.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "plan/decide.h"
#include "plan/trials.h"
#include "plan/uneven.h"

/* The defaults were chosen on 200 random machines (random_machine.h, seeds 401 to 440,
 * structures of 0 to 40 %). A plan is "lost" if it is over 2 % slower than the best of
 * all.
 *   final_repeats 32, 64, 96: 1, 0 and 0 plans are lost; plans are 0.26, 0.14 and 0.12 %
 *     slower than the best on average, after 1,200, 1,600 and 1,960 measurements.
 *   k 5, 10, 20: the same plans after 1,290, 1,600 and 2,040 measurements. The default is
 *     the paper's.
 *   margin 1, 2, 3: the same plans after 1,650, 1,600 and 1,560 measurements.
 *   max_measurements and max_s end searches of flat machines with a thousand CPUs.
 * Two refinements were tried and left out, because results were no worse without them: more
 * than one first measurement of each configuration, and successive halving of the
 * candidates before the final comparison. */
#define OPT_OF struct plan_tree_search_opts
const struct opt_row plan_tree_search_opt_table[] = {
    OPT_ROW(BOOL, group, "true",
            "Try levels of the topology that the machine may not report (group)."),
    OPT_ROW(BOOL, remove, "true",
            "Try leaving CPUs out, equally many of each node (remove)."),
    OPT_ROW(BOOL, prune, "true",
            "Do not transform a tree further when it is not faster than its parent."),
    OPT_ROW(
        BOOL, hash, "true",
        "Recognise equal trees and configurations by their hash and measure them once."),
    OPT_ROW(BOOL, uneven, "true",
            "Afterwards try plans that trees cannot express: any cores of a memory node, "
            "and another number of ranks on each."),
    OPT_ROW(BOOL, random, "false", "Draw trees at random in place of the search."),
    OPT_ROW(BOOL, all_cores, "false", "Use all CPUs: never leave any out."),
    OPT_ROW(
        INT, k, "10",
        "Number of best configurations that are measured again at the end and reported.",
        .unit = "configs", .min = 1, .max = 1000),
    OPT_ROW(INT, final_repeats, "64",
            "Rounds of measurements of the best configurations at the end, in turn.",
            .min = 1, .max = 1e5),
    OPT_ROW(
        F64, margin, "2",
        "Transform a tree further if it beats its parent by this multiple of the noise.",
        .unit = "x noise", .min = 0, .max = 100),
    OPT_ROW(
        INT, patience, "0",
        "Discard configurations with the same ranks and memory nodes when N of them in a "
        "row are not the fastest so far, as the paper does. 0: never.",
        .unit = "configs", .min = 0, .max = 1e6),
    OPT_ROW(INT, max_measurements, "200000",
            "End the search after N measurements. 0: no limit.", .min = 0, .max = 1e12),
    OPT_ROW(F64, max_s, "25", "End the search after this wall time. 0: no limit.",
            .unit = "s", .min = 0, .max = 1e9),
    OPT_ROW(INT, seed, "1", "Seed of all random draws.", .min = 0, .max = 9e15),
    {0}};

void plan_tree_search_as_paper(struct plan_tree_search_opts *o)
{
    o->traversal = PLAN_PAPER;
    o->margin = 0;
    o->uneven = false;
}

/* ---- exploration: the trees of the closure, and those that remove() makes of each ---- */

struct explorer {
    struct plan_trials *s;
    struct map seen; /* hashes of the visited trees */
    double margin;   /* the fraction by which a tree must beat its parent */
};

/* Find the time of the fastest cross-section of a tree. A configuration that was measured
 * before is not measured again. */
static int measure_tree(struct explorer *x, const struct topo_tree *t,
                        const struct plan_tree_id *id, double *best)
{
    struct plan_trials *s = x->s;
    int rc = OK, i;

    *best = INFINITY;
    s->counts->n_trees++;
    for (int l = 0; rc == OK && l < t->n_levels && !plan_trials_spent(s); l++) {
        struct topo_config c;
        double seconds;

        rc = topo_config_cut(&c, t, l, s->limits);
        if (rc == ERR_UNSUPPORTED) {
            s->counts->n_refused++;
            rc = OK;
            continue;
        }
        if (rc == OK)
            rc = plan_trial_find(s, &c, id, &i);
        if (rc == OK && plan_trial_discarded(s, i))
            continue;
        if (rc == OK && (s->trials[i].n == 0 || !s->o->hash))
            rc = plan_trial_measure(s, i, &c, &seconds);
        if (rc == OK)
            *best = fmin(*best, s->trials[i].seconds);
    }
    return rc;
}

static bool known(struct explorer *x, const struct topo_tree *t, int *rc)
{
    uint64_t hash = topo_tree_hash(t);
    int64_t value;

    *rc = OK;
    if (!x->s->o->hash)
        return false;
    if (map_find(&x->seen, hash, &value)) {
        x->s->counts->n_merged++;
        return true;
    }
    *rc = map_put(&x->seen, hash, 0);
    return false;
}

/* Measure a tree. If it is faster than its parent by more than the margin, visit all trees that
 * one remove() makes of it. */
static int visit(struct explorer *x, const struct topo_tree *t,
                 const struct plan_tree_id *id, double parent)
{
    const struct plan_tree_search_opts *o = x->s->o;
    double best;
    int rc = measure_tree(x, t, id, &best);

    if (rc != OK || !o->remove || o->all_cores)
        return rc;
    if (o->prune && best >= parent * (1 - x->margin)) {
        x->s->counts->n_pruned++;
        return OK;
    }
    for (int l = 0; rc == OK && l + 1 < t->n_levels; l++)
        for (int n = 1; rc == OK && n < id->kept[l] && !plan_trials_spent(x->s); n++) {
            struct plan_tree_id child = *id;
            struct topo_tree *less;

            child.kept[l] = (uint16_t)(id->kept[l] - n);
            rc = topo_tree_remove(&less, t, n, l + 1);
            if (rc == OK && !known(x, less, &rc) && rc == OK)
                rc = visit(x, less, &child, best);
            mem_free(less);
        }
    return rc;
}

/* ---- the paper's traversal ---- */

#define DISCARDED                                                                        \
    (-INFINITY) /* in place of a time: this tree or an ancestor was pruned */

/* All trees that remove() makes of one of the closure, by what they keep. */
struct lattice {
    int n_levels, arity[TOPO_LEVELS_MAX];
    double *
        seconds; /* [product of the arities], with what is removed as mixed radix digits */
    size_t *order; /* topological: fewest removed first */
    size_t n;
};

static int n_removed(const struct lattice *g, size_t at, int *removed)
{
    int sum = 0;

    for (int l = 0; l < g->n_levels; l++, at /= (size_t)g->arity[l - 1])
        sum += removed[l] = (int)(at % (size_t)g->arity[l]);
    return sum;
}

static int by_removed(const void *a, const void *b, void *arg)
{
    int removed[TOPO_LEVELS_MAX];
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    int dx = n_removed(arg, x, removed), dy = n_removed(arg, y, removed);

    return dx != dy ? dx - dy : x < y ? -1 : x > y;
}

static int open_lattice(struct lattice *g, const struct topo_tree *t)
{
    *g = (struct lattice){.n_levels = t->n_levels - 1, .n = 1};
    for (int l = 0; l < g->n_levels; l++) {
        g->arity[l] = t->levels[l].arity;
        g->n *= (size_t)g->arity[l];
    }
    g->seconds = mem_new(MEM_OTHER, g->n, sizeof(*g->seconds));
    g->order = mem_new(MEM_OTHER, g->n, sizeof(*g->order));
    if (!g->seconds || !g->order)
        return ERR_NOMEM;
    for (size_t i = 0; i < g->n; i++)
        g->order[i] = i;
    qsort_r(g->order, g->n, sizeof(*g->order), by_removed, g);
    return OK;
}

/* The fastest parent of a tree: one with more children at one of its levels. DISCARDED if one of
 * them is. */
static double fastest_parent(const struct lattice *g, size_t at, const int *removed)
{
    double best = INFINITY;
    size_t weight = 1;

    for (int l = 0; l < g->n_levels; weight *= (size_t)g->arity[l++])
        for (int n = 1; n <= removed[l]; n++)
            best = fmin(best, g->seconds[at - (size_t)n * weight]);
    return best;
}

static int visit_lattice(struct explorer *x, const struct lattice *g, int grouped)
{
    const struct plan_tree_search_opts *o = x->s->o;
    int removed[TOPO_LEVELS_MAX], rc = OK;

    for (size_t i = 0; rc == OK && i < g->n && !plan_trials_spent(x->s); i++) {
        size_t at = g->order[i];
        double *own = &g->seconds[at], parent;
        struct plan_tree_id id = plan_tree_id_whole(x->s, grouped);
        struct topo_tree *t = NULL;

        n_removed(g, at, removed);
        for (int l = 0; l < g->n_levels; l++)
            id.kept[l] = (uint16_t)(id.kept[l] - removed[l]);
        parent = fastest_parent(g, at, removed);
        *own = DISCARDED;
        if (o->prune && parent == DISCARDED)
            continue;
        rc = plan_tree_id_open(&t, x->s, &id);
        if (rc == OK)
            rc = measure_tree(x, t, &id, own);
        mem_free(t);
        if (rc == OK && o->prune && *own >= parent * (1 - x->margin)) {
            x->s->counts->n_pruned++;
            *own = DISCARDED;
        }
    }
    return rc;
}

static int visit_as_paper(struct explorer *x, int grouped)
{
    struct lattice g;
    int rc = open_lattice(&g, x->s->grouped[grouped]);

    if (rc == OK && (!x->s->o->remove || x->s->o->all_cores))
        g.n = 1;
    if (rc == OK)
        rc = visit_lattice(x, &g, grouped);
    mem_free(g.seconds);
    mem_free(g.order);
    return rc;
}

/* Trees with fewer groups are simpler explanations of a machine, so they come first. Trees with
 * the same number of groups are in random order, so that a small budget reaches all kinds. */
static void order_trees(struct plan_trials *s)
{
    struct rng r;

    rng_init(&r, (uint64_t)s->o->seed, "tree_search_order");
    for (int first = 0, end; first < s->n_grouped; first = end) {
        int groups = plan_tree_groups(s->grouped[first]);

        for (end = first; end < s->n_grouped; end++)
            if (plan_tree_groups(s->grouped[end]) != groups)
                break;
        for (int i = end - 1; i > first; i--) {
            int j = first + (int)rng_below(&r, (uint64_t)(i - first) + 1);
            struct topo_tree *t = s->grouped[i];

            s->grouped[i] = s->grouped[j];
            s->grouped[j] = t;
        }
    }
}

static int explore_all(struct plan_trials *s)
{
    struct explorer x = {.s = s, .margin = s->o->margin * s->e->noise_frac};
    int rc = OK;

    order_trees(s);
    for (int i = 0; rc == OK && i < s->n_grouped && !plan_trials_spent(s); i++) {
        struct plan_tree_id whole = plan_tree_id_whole(s, i);

        rc = s->o->traversal == PLAN_PAPER ? visit_as_paper(&x, i)
                                           : visit(&x, s->grouped[i], &whole, INFINITY);
    }
    map_fini(&x.seen);
    return rc;
}

/* ---- the ablation: trees drawn at random ---- */

/* After this many trees in a row without a new configuration nearly all are known. */
#define DRY_MAX 5000

static int explore_random(struct plan_trials *s)
{
    struct explorer x = {.s = s};
    struct rng r;
    int rc = OK;

    rng_init(&r, (uint64_t)s->o->seed, "tree_search_sample");
    for (int dry = 0; rc == OK && dry < DRY_MAX && !plan_trials_spent(s); dry++) {
        bool first = s->counts->n_trees == 0; /* the fundamental tree */
        int before = s->n_trials;
        struct plan_tree_id id =
            plan_tree_id_whole(s, first ? 0 : (int)rng_below(&r, (uint64_t)s->n_grouped));
        struct topo_tree *t;
        double best;

        for (int l = 0; !first && s->o->remove && !s->o->all_cores &&
                        l + 1 < s->grouped[id.grouped]->n_levels;
             l++)
            id.kept[l] = (uint16_t)(1 + rng_below(&r, id.kept[l]));
        rc = plan_tree_id_open(&t, s, &id);
        if (rc == OK)
            rc = measure_tree(&x, t, &id, &best);
        mem_free(t);
        if (s->n_trials > before)
            dry = 0;
    }
    return rc;
}

/* ---- the search ---- */

static int check(const struct topo_tree *t, const struct plan_evaluation *e,
                 const struct plan_tree_search_opts *o)
{
    if (!t || t->n_pus < 1 || !e || !e->measure)
        return err_set(ERR_ARG, "a search needs a tree and an evaluator");
    if (o->k < 1 || o->final_repeats < 1 || o->margin < 0 || o->patience < 0 ||
        o->max_measurements < 0 || o->max_s < 0)
        return err_set(ERR_ARG, "search: expected k and final_repeats of at least 1 and "
                                "no negative limit");
    if (!(e->noise_frac >= 0))
        return err_set(ERR_ARG, "search: a noise of %g", e->noise_frac);
    return OK;
}

int plan_tree_search(struct plan_tree_result *out, const struct topo_tree *fundamental,
                     const struct topo_limits *limits, const struct plan_evaluation *e,
                     const struct plan_tree_search_opts *o)
{
    static const struct topo_limits none;
    struct plan_trials s = {
        .e = e, .limits = limits ? limits : &none, .o = o, .counts = &out->counts};
    int rc;

    *out = (struct plan_tree_result){.counts.complete = true};
    rc = check(fundamental, e, o);
    if (rc == OK)
        rc = plan_trials_open(&s, fundamental);
    if (rc == OK)
        rc = o->random ? explore_random(&s) : explore_all(&s);
    out->counts.complete = out->counts.complete && !s.spent;
    if (rc == OK && o->uneven && o->remove && !o->all_cores && !o->random)
        rc = plan_uneven_search(&s);
    if (rc == OK)
        rc = plan_decide(out, &s);
    plan_trials_close(&s);
    if (rc != OK)
        plan_tree_result_free(out);
    return rc;
}

void plan_tree_result_free(struct plan_tree_result *f)
{
    for (int i = 0; i < f->n_top; i++)
        mem_free(f->top[i].tree);
    mem_free(f->top);
    mem_free(f->explain);
    f->top = NULL;
    f->explain = NULL;
    f->n_top = 0;
}
