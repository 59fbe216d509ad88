/* The answer in words: what was tried, what was chosen, over what, and which of its
 * transformations pays. */
#include "plan/tree_search_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct text {
    char *s;
    size_t n, size;
    int rc;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *fmt,
                                                      ...)
{
    char line[512];
    va_list ap;
    size_t n;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    n = strlen(line);
    if (t->rc == OK && t->n + n + 1 > t->size) {
        size_t size = 2 * t->size + n + 1024;
        char *wider = mem_resize(MEM_OTHER, t->s, size, 1);

        if (wider)
            t->s = wider, t->size = size;
        else
            t->rc = ERR_NOMEM;
    }
    if (t->rc == OK) {
        memcpy(t->s + t->n, line, n + 1);
        t->n += n;
    }
}

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

    add(t, "The machine, as it reports itself: ");
    for (int l = 0; l + 1 < tree->n_levels; l++) {
        topo_kinds_print(tree->levels[l + 1].kinds, kinds, sizeof(kinds));
        add(t, "%s%d %s%s", l ? ", each with " : "", tree->levels[l].arity, kinds,
            plural(tree->levels[l].arity));
    }
    add(t, " (%d CPUs).\n", tree->n_pus);
}

static void add_counts(struct text *t, const struct plan_trials *b,
                       const struct plan_final *f)
{
    const struct plan_tree_search_counts *c = b->counts;

    add(t,
        "Looked at %lld of the trees that groups and removes make (%lld groupings, the "
        "machine's own one of them):\n%lld different configurations, %lld measurements, "
        "%.1f s%s.\n",
        (long long)c->n_trees, (long long)c->n_grouped, (long long)c->n_configs,
        (long long)c->n_measurements, (double)(clock_ns() - b->start_ns) * 1e-9,
        c->complete ? "" : "; the budget ended it before all was tried");
    add(t,
        "Merged %lld tree%s known by their hash; pruned %lld no better than their best "
        "parent; dropped %lld\nconfiguration%s out of patience; refused %lld "
        "cross-section%s that the operators do not allow.\n",
        (long long)c->n_merged, plural(c->n_merged), (long long)c->n_pruned,
        (long long)c->n_dropped, plural(c->n_dropped), (long long)c->n_refused,
        plural(c->n_refused));
    add(t,
        "The best were measured again, %d times each in turn. One measurement varies by "
        "%.1f %%: means that\ndiffer by less than %.1f %% tie, and of those that tie the "
        "simplest is chosen.\n",
        f->v[0].n, 100 * f->noise_frac,
        100 * b->o->margin * f->noise_frac * sqrt(2.0 / (f->v[0].n ? f->v[0].n : 1)));
}

static void add_row(struct text *t, const struct plan_final *f, int i)
{
    const struct plan_candidate *v = &f->v[i];

    add(t, "  %s %10.4f +- %.4f  %+6.1f %%  %-4s  %3d x %-3d  %s%s\n",
        i == f->chosen ? "->" : "  ", v->mean * 1e3, v->sd * 1e3,
        percent(v->mean, f->v[0].mean), v->ties ? "ties" : "", v->config.n_ranks,
        v->config.n_threads, v->tree->steps[0] ? v->tree->steps : "as it is",
        i == f->whole   ? "  (best with all CPUs)"
        : i == f->plain ? "  (best without groups)"
                        : "");
}

static void add_table(struct text *t, const struct plan_trials *b,
                      const struct plan_final *f)
{
    add(t, "        ms, mean +- sd    to best        ranks x threads, transformations\n");
    for (int i = 0; i < f->n; i++)
        if (i < b->o->k || i == f->chosen || i == f->plain || i == f->whole)
            add_row(t, f, i);
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
static int without_remove(const struct plan_trials *b, struct plan_tree_id r, int level,
                          double *seconds)
{
    struct topo_tree *t = NULL;
    struct topo_config c;
    int64_t known;
    int rc;

    *seconds = INFINITY;
    r.kept[level] = (uint16_t)b->grouped[r.grouped]->levels[level].arity;
    rc = plan_tree_id_tree(&t, b, &r);
    for (int l = 0; rc == OK && l < t->n_levels; l++) {
        rc = topo_config_cut(&c, t, l, b->limits);
        if (rc == OK && map_find(&b->configs, topo_config_key(&c), &known))
            *seconds = fmin(*seconds, plan_trial_mean(&b->entries[known]));
        if (rc == ERR_UNSUPPORTED)
            rc = OK;
    }
    mem_free(t);
    return rc;
}

static void add_removes(struct text *t, const struct plan_trials *b,
                        const struct plan_candidate *v)
{
    const struct plan_tree_id *r = &b->entries[v->entry].from;
    const struct topo_tree *whole = b->grouped[r->grouped];
    char child[64], parent[64];
    double seconds;
    int rc = OK;

    for (int l = 0; rc == OK && l + 1 < whole->n_levels; l++) {
        bool group = whole->levels[l].kinds & TOPO_GROUP;

        if (r->kept[l] == whole->levels[l].arity)
            continue;
        topo_kinds_print(whole->levels[l].kinds, parent, sizeof(parent));
        topo_kinds_print(whole->levels[l + 1].kinds, child, sizeof(child));
        add(t, "It keeps %d of the %d %ss of each %s", r->kept[l], whole->levels[l].arity,
            child, parent);
        if (group)
            add(t, " (made of %ss at stride %d)", child, stride_of(whole, l));
        rc = without_remove(b, *r, l, &seconds);
        if (rc == OK && isfinite(seconds))
            add(t, ": with all of them the best found is %+.1f %%",
                percent(seconds, plan_trial_mean(&b->entries[v->entry])));
        add(t, ".\n");
    }
    if (rc != OK && t->rc == OK)
        t->rc = rc;
}

static void add_verdict(struct text *t, const struct plan_trials *b,
                        const struct plan_final *f)
{
    const struct plan_candidate *v = &f->v[f->chosen];
    char config[96];

    topo_config_print(&v->config, config, sizeof(config));
    add(t, "Chosen: %s, %d of %d CPUs, %.4f ms", config, v->tree->n_pus,
        b->grouped[0]->n_pus, v->mean * 1e3);
    if (f->whole >= 0 && f->whole != f->chosen)
        add(t, "; with all CPUs the best is %+.1f %%",
            percent(f->v[f->whole].mean, v->mean));
    add(t, ".\n");
    add_removes(t, b, v);
    if (f->latent)
        add(t,
            "A level that the machine does not report pays: measured once more against "
            "it, the best without groups\nwas %+.1f %%.\n",
            100 * f->gain);
    else if (f->duelled && isnan(f->gain))
        add(t, "A grouped tree looked faster than this one; the budget ended before it "
               "could prove it.\n");
    else if (f->duelled)
        add(t,
            "A grouped tree looked faster than this one, but not when both were "
            "measured once more: %+.1f %%.\n",
            100 * f->gain);
    else if (b->o->group)
        add(t, "No level that the machine does not report is needed for this.\n");
    if (f->chosen)
        add(t,
            "The fastest mean is %.1f %% lower, which is no difference at this noise: "
            "this one has fewer transformations or threads.\n",
            -percent(f->v[0].mean, v->mean));
}

int plan_tree_search_explain(char **text, const struct plan_trials *b,
                             const struct plan_final *f)
{
    struct text t = {0};

    *text = NULL;
    add_machine(&t, b->grouped[0]);
    add_counts(&t, b, f);
    add_table(&t, b, f);
    add_verdict(&t, b, f);
    if (t.rc == OK)
        *text = t.s, t.s = NULL;
    mem_free(t.s);
    return t.rc;
}
