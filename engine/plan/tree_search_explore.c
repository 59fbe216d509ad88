/* Exploration: measures the trees of the group closure, and those that remove() makes of each. */
#include "plan/tree_search_parts.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"

struct explorer {
    struct plan_search *s;
    struct map seen; /* hashes of the visited trees */
    double margin;   /* the fraction by which a tree must beat its parent */
};

/* Find the time of the fastest cross-section of a tree. A configuration that was measured
 * before is not measured again. */
static int measure_tree(struct explorer *x, const struct topo_tree *t,
                        const struct plan_tree_id *id, double *best)
{
    struct plan_search *s = x->s;
    int rc = OK, i;

    *best = INFINITY;
    s->counts->n_trees++;
    for (int l = 0; rc == OK && l < t->n_levels && !plan_search_spent(s); l++) {
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
        for (int n = 1; rc == OK && n < id->kept[l] && !plan_search_spent(x->s); n++) {
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

/* Trees with fewer groups are simpler explanations of a machine, so they come first. Trees with
 * the same number of groups are in random order, so that a small budget reaches all kinds. */
static void order_trees(struct plan_search *s)
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

static int explore_all(struct plan_search *s)
{
    struct explorer x = {.s = s, .margin = s->o->margin * s->e->noise_frac};
    int rc = OK;

    order_trees(s);
    for (int i = 0; rc == OK && i < s->n_grouped && !plan_search_spent(s); i++) {
        struct plan_tree_id whole = plan_tree_id_whole(s, i);

        rc = visit(&x, s->grouped[i], &whole, INFINITY);
    }
    map_fini(&x.seen);
    return rc;
}

/* ---- the ablation: trees drawn at random ---- */

/* After this many trees in a row without a new configuration nearly all are known. */
#define DRY_MAX 5000

static int explore_random(struct plan_search *s)
{
    struct explorer x = {.s = s};
    struct rng r;
    int rc = OK;

    rng_init(&r, (uint64_t)s->o->seed, "tree_search_sample");
    for (int dry = 0; rc == OK && dry < DRY_MAX && !plan_search_spent(s); dry++) {
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

int plan_search_explore(struct plan_search *s)
{
    int rc = s->o->random ? explore_random(s) : explore_all(s);

    s->counts->complete = s->counts->complete && !s->spent;
    return rc;
}
