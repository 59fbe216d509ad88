/* The ablation: trees and cross-sections drawn at random, under the same budget. */
#include "plan/tree_search_parts.h"

#include "base/mem.h"
#include "base/rng.h"

/* So many draws in a row without a configuration not yet seen end the sampling where the
 * budget does not: the space is then as good as exhausted. */
#define DRY_MAX 20000

static struct plan_tree_id draw(const struct plan_trials *b, struct rng *r)
{
    int grouped = (int)rng_below(r, (uint64_t)b->n_grouped);
    struct plan_tree_id recipe = plan_tree_id_whole(b, grouped);

    if (b->o->remove && !b->o->all_cores)
        for (int l = 0; l + 1 < b->grouped[grouped]->n_levels; l++)
            recipe.kept[l] = (uint16_t)(1 + rng_below(r, recipe.kept[l]));
    return recipe;
}

static int measure_cut(struct plan_trials *b, const struct topo_tree *t,
                       const struct plan_tree_id *r, int level, bool *is_new)
{
    struct topo_config c;
    int entry, rc = topo_config_cut(&c, t, level, b->limits);

    *is_new = false;
    if (rc == ERR_UNSUPPORTED) {
        b->counts->n_refused++;
        return OK;
    }
    if (rc == OK)
        rc = plan_trials_entry(b, &c, r, &entry, is_new);
    if (rc == OK && *is_new)
        rc = plan_trials_measure(b, entry, &c, (int)b->o->repeats, NULL, NULL);
    return rc;
}

int plan_tree_search_sample(struct plan_trials *b)
{
    struct plan_tree_id r = plan_tree_id_whole(b, 0);
    struct rng rng;
    bool is_new;
    int rc = OK;

    rng_init(&rng, (uint64_t)b->o->seed, "topo_search_sample");
    /* What any method knows without searching: the machine as it is. */
    for (int l = 0; rc == OK && l < b->grouped[0]->n_levels; l++)
        rc = measure_cut(b, b->grouped[0], &r, l, &is_new);
    for (int dry = 0; rc == OK && dry < DRY_MAX && !plan_trials_spent(b); dry++) {
        struct topo_tree *t = NULL;

        r = draw(b, &rng);
        rc = plan_tree_id_tree(&t, b, &r);
        b->counts->n_trees++;
        if (rc == OK)
            rc = measure_cut(b, t, &r, (int)rng_below(&rng, (uint64_t)t->n_levels),
                             &is_new);
        if (is_new)
            dry = 0;
        mem_free(t);
    }
    b->counts->complete = b->counts->complete && !b->spent;
    return rc;
}
