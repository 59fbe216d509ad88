/* The answer in words: what was tried, what was chosen, over what, and which of its
 * transformations pays. */
#include "plan/tree_search_parts.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static double percent(double x, double than)
{
    return 100 * (x / than - 1);
}

static void add_machine(struct text *t, const struct topo_tree *tree)
{
    char kinds[64];

    text_printf(t, "The machine, as it reports itself: ");
    for (int l = 0; l + 1 < tree->n_levels; l++) {
        topo_kinds_print(tree->levels[l + 1].kinds, kinds, sizeof(kinds));
        text_printf(t, "%s%d %s%s", l ? ", each with " : "", tree->levels[l].arity, kinds,
                    plural(tree->levels[l].arity));
    }
    text_printf(t, " (%d CPUs).\n", tree->n_pus);
}

static void add_counts(struct text *t, const struct plan_search *s)
{
    const struct plan_tree_search_counts *c = s->counts;

    text_printf(
        t,
        "Looked at %lld of the trees that groups and removes make (%lld groupings, the "
        "machine's own one of them):\n%lld different configurations, %lld measurements, "
        "%.1f s%s.\n",
        (long long)c->n_trees, (long long)c->n_grouped, (long long)c->n_configs,
        (long long)c->n_measurements, (double)(clock_ns() - s->start_ns) * 1e-9,
        c->complete ? "" : "; the budget ended it before all was tried");
    text_printf(
        t,
        "Merged %lld tree%s known by their hash; did not follow %lld that were no better "
        "than their parent;\nrefused %lld cross-section%s that the operators do not "
        "allow.\n",
        (long long)c->n_merged, plural(c->n_merged), (long long)c->n_pruned,
        (long long)c->n_refused, plural(c->n_refused));
    text_printf(
        t,
        "The best were measured again in turn, up to %lld times each; one measurement "
        "varies by %.1f %%. Configurations\nwithin the noise of the fastest tie with it, "
        "and the simplest of these is chosen.\n",
        (long long)s->o->final_repeats, 100 * s->e->noise_frac);
}

static void add_row(struct text *t, const struct plan_decision *d, int i)
{
    const struct plan_candidate *v = &d->v[i];

    text_printf(t, "  %s %10.4f [%.4f, %.4f]  %+6.1f %%  %-4s  %3d x %-3d  %s%s\n",
                i == d->chosen ? "->" : "  ", v->seconds * 1e3, v->lo * 1e3, v->hi * 1e3,
                percent(v->seconds, d->v[0].seconds), v->ties ? "ties" : "",
                v->config.n_ranks, v->config.n_threads,
                v->tree->steps[0] ? v->tree->steps : "as it is",
                i == d->whole   ? "  (best with all CPUs)"
                : i == d->plain ? "  (best without groups)"
                                : "");
}

static void add_table(struct text *t, const struct plan_search *s,
                      const struct plan_decision *d)
{
    text_printf(t,
                "        ms, 95 %% interval             to best        ranks x threads, "
                "transformations\n");
    for (int i = 0; i < d->n; i++)
        if (i < s->o->k || i == d->chosen || i == d->plain || i == d->whole)
            add_row(t, d, i);
}

/* Children of the first node of a group level stand so far apart among those that the
 * grouping found. */
static int stride_of(const struct topo_tree *t, int level)
{
    int span = topo_tree_span(t, level + 1), stride = 0;
    int n = topo_tree_span(t, level - 1) / span;

    for (int i = 0; i < n; i++) {
        int least = t->pus[i * span], second = t->pus[span];

        for (int j = 1; j < span; j++) {
            least = t->pus[i * span + j] < least ? t->pus[i * span + j] : least;
            second = t->pus[span + j] < second ? t->pus[span + j] : second;
        }
        stride += least < second;
    }
    return stride;
}

/* The best known of the chosen tree with one of its levels made whole again; INFINITY
 * where it was not measured. */
static int without_remove(const struct plan_search *s, struct plan_tree_id r, int level,
                          double *seconds)
{
    struct topo_tree *t = NULL;
    struct topo_config c;
    int64_t known;
    int rc;

    *seconds = INFINITY;
    r.kept[level] = (uint16_t)s->grouped[r.grouped]->levels[level].arity;
    rc = plan_tree_id_open(&t, s, &r);
    for (int l = 0; rc == OK && l < t->n_levels; l++) {
        rc = topo_config_cut(&c, t, l, s->limits);
        if (rc == OK && map_find(&s->configs, topo_config_key(&c), &known))
            *seconds = fmin(*seconds, s->trials[known].seconds);
        if (rc == ERR_UNSUPPORTED)
            rc = OK;
    }
    mem_free(t);
    return rc;
}

static void add_removes(struct text *t, const struct plan_search *s,
                        const struct plan_candidate *v)
{
    const struct plan_tree_id *r = &s->trials[v->trial].id;
    const struct topo_tree *whole = s->grouped[r->grouped];
    char child[64], parent[64];
    double seconds;
    int rc = OK;

    for (int l = 0; rc == OK && l + 1 < whole->n_levels; l++) {
        bool group = whole->levels[l].kinds & TOPO_GROUP;

        if (r->kept[l] == whole->levels[l].arity)
            continue;
        topo_kinds_print(whole->levels[l].kinds, parent, sizeof(parent));
        topo_kinds_print(whole->levels[l + 1].kinds, child, sizeof(child));
        text_printf(t, "It keeps %d of the %d %ss of each %s", r->kept[l],
                    whole->levels[l].arity, child, parent);
        if (group)
            text_printf(t, " (made of %ss at stride %d)", child, stride_of(whole, l));
        rc = without_remove(s, *r, l, &seconds);
        if (rc == OK && isfinite(seconds))
            text_printf(t, ": with all of them the best found is %+.1f %%",
                        percent(seconds, v->seconds));
        text_printf(t, ".\n");
    }
    if (rc != OK && t->rc == OK)
        t->rc = rc;
}

static void add_uneven(struct text *t, const struct plan_uneven *u)
{
    text_printf(t, "No tree has this plan: %s%s%s.\n",
                u->ordered ? "its cores are those that were fastest together" : "",
                u->ordered && u->mixed ? ", and " : "",
                u->mixed     ? "memory nodes have unequal numbers of ranks"
                : u->ordered ? ""
                             : "its ranks do not divide a memory node");
}

static void add_verdict(struct text *t, const struct plan_search *s,
                        const struct plan_decision *d)
{
    const struct plan_candidate *v = &d->v[d->chosen];
    char config[96];

    topo_config_print(&v->config, config, sizeof(config));
    text_printf(t, "Chosen: %s, %d of %d CPUs, %.4f ms", config, v->tree->n_pus,
                s->grouped[0]->n_pus, v->seconds * 1e3);
    if (d->whole >= 0 && d->whole != d->chosen)
        text_printf(t, "; with all CPUs the best is %+.1f %%",
                    percent(d->v[d->whole].seconds, v->seconds));
    text_printf(t, ".\n");
    if (s->trials[v->trial].uneven)
        add_uneven(t, s->trials[v->trial].uneven);
    else
        add_removes(t, s, v);
    if (d->latent)
        text_printf(
            t,
            "%s that the machine does not report pays: measured once more against "
            "it, the best without %s\nwas %+.1f %%.\n",
            s->trials[v->trial].uneven ? "A difference of cores or nodes" : "A level",
            s->trials[v->trial].uneven ? "it" : "groups", 100 * d->gain);
    else if (d->retested && d->gain > 0)
        text_printf(
            t,
            "Measured once more against it, the best without groups was %+.1f %%: "
            "too little to say that\nthe machine has a level it does not report.\n",
            100 * d->gain);
    else if (d->retested)
        text_printf(t,
                    "A tree with groups looked faster than this one, but was not surely "
                    "so when both were measured once more.\n");
    else if (s->o->group)
        text_printf(t, "No level that the machine does not report is needed for this.\n");
    if (d->chosen)
        text_printf(
            t,
            "The fastest is %.1f %% faster, but not surely so; this one has fewer "
            "transformations or threads.\n",
            percent(v->seconds, d->v[0].seconds));
}

int plan_search_explain(char **text, const struct plan_search *s,
                        const struct plan_decision *d)
{
    struct text t = {0};
    int rc;

    add_machine(&t, s->grouped[0]);
    add_counts(&t, s);
    add_table(&t, s, d);
    add_verdict(&t, s, d);
    text_put(&t, "", 1);
    rc = t.rc;
    *text = rc == OK ? t.p : NULL;
    if (rc != OK)
        text_fini(&t);
    return rc;
}
