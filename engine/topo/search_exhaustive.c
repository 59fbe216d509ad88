/* The optimum by looking at everything. */
#include "topo/search_parts.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct all {
    struct topo_map known; /* configurations */
    const struct topo_limits *limits;
    const struct topo_evaluator *e;
    struct topo_search_counts counts;
    struct topo_choice best;
};

static int copy_tree(struct topo_tree **out, const struct topo_tree *t)
{
    size_t bytes = sizeof(*t) + (size_t)t->n_pus * sizeof(t->pus[0]);

    *out = mem_new(MEM_OTHER, 1, bytes);
    if (!*out)
        return ERR_NOMEM;
    memcpy(*out, t, bytes);
    return OK;
}

static int keep_best(struct all *a, const struct topo_config *c, double seconds)
{
    struct topo_tree *t;
    int rc;

    if (a->best.tree && seconds >= a->best.seconds)
        return OK;
    rc = copy_tree(&t, c->tree);
    if (rc != OK)
        return rc;
    mem_free(a->best.tree);
    a->best = (struct topo_choice){
        .tree = t, .config = *c, .seconds = seconds, .n_measurements = 1, .ties = true};
    a->best.config.tree = t;
    return OK;
}

static int look_at(struct all *a, const struct topo_tree *t)
{
    struct topo_config c;
    double seconds;
    int64_t known;
    int rc = OK;

    a->counts.n_trees++;
    for (int l = 0; rc == OK && l < t->n_levels; l++) {
        rc = topo_config_cut(&c, t, l, a->limits);
        if (rc == OK && !topo_map_find(&a->known, topo_config_key(&c), &known)) {
            rc = topo_map_put(&a->known, topo_config_key(&c), 0);
            if (rc == OK)
                rc = a->e->measure(a->e->ctx, &c, 0, &seconds);
            if (rc == OK) {
                a->counts.n_configs++;
                a->counts.n_measurements++;
                rc = keep_best(a, &c, seconds);
            }
        }
        if (rc == ERR_UNSUPPORTED) {
            a->counts.n_refused++;
            rc = OK;
        }
    }
    return rc;
}

/* All removes at the levels below `level`, and none there. */
static int all_removes(struct all *a, const struct topo_tree *t, int level)
{
    struct topo_tree *less;
    int rc;

    if (level == t->n_levels - 1)
        return look_at(a, t);
    rc = all_removes(a, t, level + 1);
    for (int n = 1; rc == OK && n < t->levels[level].arity; n++) {
        rc = topo_tree_remove(&less, t, n, level + 1);
        if (rc == OK) {
            rc = all_removes(a, less, level + 1);
            mem_free(less);
        }
    }
    return rc;
}

static int each_grouped(void *arg, const struct topo_tree *t)
{
    struct all *a = arg;

    a->counts.n_grouped++;
    return all_removes(a, t, 0);
}

int topo_search_exhaustive(struct topo_choice *out, struct topo_search_counts *counts,
                           const struct topo_tree *fundamental,
                           const struct topo_limits *limits,
                           const struct topo_evaluator *e, bool group)
{
    static const struct topo_limits none;
    struct all a = {.limits = limits ? limits : &none, .e = e, .counts.complete = true};
    uint64_t start_ns = clock_ns();
    int rc;

    *out = (struct topo_choice){0};
    rc = group ? topo_tree_closure(fundamental, each_grouped, &a)
               : each_grouped(&a, fundamental);
    if (rc == OK && !a.best.tree)
        rc = err_set(ERR_UNSUPPORTED, "of %lld trees no configuration can be run",
                     (long long)a.counts.n_trees);
    a.counts.wall_s = (double)(clock_ns() - start_ns) * 1e-9;
    if (counts)
        *counts = a.counts;
    topo_map_fini(&a.known);
    if (rc == OK)
        *out = a.best, a.best.tree = NULL;
    mem_free(a.best.tree);
    return rc;
}
