#include "simulate/exhaustive.h"

#include "base/map.h"
#include "base/mem.h"

struct all {
    struct map known; /* configurations */
    const struct topo_limits *limits;
    simulate_price_fn price;
    void *ctx;
    struct simulate_best best;
};

static int keep_best(struct all *a, const struct topo_config *c, double seconds)
{
    struct topo_tree *t;
    int rc;

    if (a->best.tree && seconds >= a->best.seconds)
        return OK;
    rc = topo_tree_copy(&t, c->tree);
    if (rc != OK)
        return rc;
    mem_free(a->best.tree);
    a->best.tree = t;
    a->best.config = *c;
    a->best.config.tree = t;
    a->best.seconds = seconds;
    return OK;
}

static int price_tree(struct all *a, const struct topo_tree *t)
{
    struct topo_config c;
    double seconds;
    int64_t known;
    int rc = OK;

    a->best.n_trees++;
    for (int l = 0; rc == OK && l < t->n_levels; l++) {
        rc = topo_config_cut(&c, t, l, a->limits);
        if (rc == OK && !map_find(&a->known, topo_config_key(&c), &known)) {
            rc = map_put(&a->known, topo_config_key(&c), 0);
            if (rc == OK)
                rc = a->price(a->ctx, &c, 0, &seconds);
            a->best.n_configs += rc == OK;
            if (rc == OK)
                rc = keep_best(a, &c, seconds);
        }
        if (rc == ERR_UNSUPPORTED) {
            a->best.n_refused++;
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
        return price_tree(a, t);
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

    a->best.n_grouped++;
    return all_removes(a, t, 0);
}

int simulate_exhaustive(struct simulate_best *out, const struct topo_tree *fundamental,
                        const struct topo_limits *limits, simulate_price_fn price,
                        void *ctx, bool group)
{
    struct all a = {.limits = limits, .price = price, .ctx = ctx};
    int rc;

    *out = (struct simulate_best){0};
    rc = group ? topo_tree_closure(fundamental, each_grouped, &a)
               : each_grouped(&a, fundamental);
    if (rc == OK && !a.best.tree)
        rc = err_set(ERR_UNSUPPORTED, "of %lld trees no configuration can be run",
                     (long long)a.best.n_trees);
    map_fini(&a.known);
    if (rc == OK)
        *out = a.best, a.best.tree = NULL;
    mem_free(a.best.tree);
    return rc;
}
