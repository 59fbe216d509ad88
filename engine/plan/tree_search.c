#include "plan/tree_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "plan/tree_search_parts.h"

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

/* ---- budget ---- */

static double wall_s(const struct plan_search *s)
{
    return (double)(clock_ns() - s->start_ns) * 1e-9;
}

void plan_search_stage(struct plan_search *s, double share)
{
    const struct plan_tree_search_opts *o = s->o;
    int64_t used = s->counts->n_measurements;

    s->stop_at = o->max_measurements
                     ? used + (int64_t)ceil(share * (double)(o->max_measurements - used))
                     : 0;
    s->stop_s = o->max_s > 0 ? wall_s(s) + share * (o->max_s - wall_s(s)) : 0;
    s->spent = false;
}

bool plan_search_spent(struct plan_search *s)
{
    if (s->stop_at && s->counts->n_measurements >= s->stop_at)
        s->spent = true;
    if (!s->spent && s->o->max_s > 0 && wall_s(s) >= s->stop_s)
        s->spent = true;
    return s->spent;
}

int64_t plan_search_left(const struct plan_search *s)
{
    int64_t used = s->counts->n_measurements;
    double n = s->stop_at ? (double)(s->stop_at - used) : INFINITY;

    if (s->o->max_s > 0)
        n = fmin(n, (s->stop_s - wall_s(s)) * (double)used / fmax(wall_s(s), 1e-9));
    return n > 0 ? (int64_t)fmin(n, 1e15) : 0;
}

/* ---- trees ---- */

/* The most trees of a group closure that are kept; the rest is not searched. 60,000 trees
 * of a few hundred CPUs take 120 MB. The largest closure of the real machines that were
 * tried has a quarter of that many. */
#define GROUPED_MAX 60000

/* Ensure that *array, of `*size` elements of `bytes` each, has space for element n. */
static int widen(void **array, int n, int *size, size_t bytes)
{
    int wider = *size ? 2 * *size : 64;
    void *p;

    if (n < *size)
        return OK;
    p = mem_resize(MEM_OTHER, *array, (size_t)wider, bytes);
    if (!p)
        return ERR_NOMEM;
    *array = p;
    *size = wider;
    return OK;
}

static int keep_grouped(void *arg, const struct topo_tree *t)
{
    struct plan_search *s = arg;
    int rc = widen((void **)&s->grouped, s->n_grouped, &s->grouped_size,
                   sizeof(s->grouped[0]));

    if (rc != OK)
        return rc;
    if (s->n_grouped == GROUPED_MAX || (s->n_grouped && plan_search_spent(s))) {
        s->counts->complete = false;
        return ERR_CANCELED;
    }
    rc = topo_tree_copy(&s->grouped[s->n_grouped], t);
    s->n_grouped += rc == OK;
    return rc;
}

int plan_tree_groups(const struct topo_tree *t)
{
    int n = 0;

    for (int l = 0; l < t->n_levels; l++)
        n += (t->levels[l].kinds & TOPO_GROUP) != 0;
    return n;
}

static int by_groups(const void *a, const void *b)
{
    const struct topo_tree *x = *(struct topo_tree *const *)a;
    const struct topo_tree *y = *(struct topo_tree *const *)b;
    int dx = plan_tree_groups(x), dy = plan_tree_groups(y);

    if (dx != dy)
        return dx - dy;
    return strcmp(x->steps, y->steps);
}

static int open_closure(struct plan_search *s, const struct topo_tree *fundamental)
{
    int rc;

    if (fundamental->n_pus > UINT16_MAX)
        return err_set(ERR_LIMIT, "a machine of %d CPUs: a search takes at most %d",
                       fundamental->n_pus, UINT16_MAX);
    rc = s->o->group ? topo_tree_closure(fundamental, keep_grouped, s)
                     : keep_grouped(s, fundamental);
    if (rc == ERR_CANCELED && s->n_grouped)
        rc = OK;
    if (rc == OK)
        qsort(s->grouped, (size_t)s->n_grouped, sizeof(*s->grouped), by_groups);
    s->counts->n_grouped = s->n_grouped;
    s->counts->group_s = wall_s(s);
    return rc;
}

struct plan_tree_id plan_tree_id_whole(const struct plan_search *s, int grouped)
{
    struct plan_tree_id id = {.grouped = grouped};

    for (int l = 0; l < s->grouped[grouped]->n_levels; l++)
        id.kept[l] = (uint16_t)s->grouped[grouped]->levels[l].arity;
    return id;
}

int plan_tree_id_open(struct topo_tree **out, const struct plan_search *s,
                      const struct plan_tree_id *id)
{
    struct topo_tree *t, *less;
    int rc = topo_tree_copy(&t, s->grouped[id->grouped]);

    for (int l = 0; rc == OK && l + 1 < t->n_levels; l++) {
        if (id->kept[l] == t->levels[l].arity)
            continue;
        rc = topo_tree_remove(&less, t, t->levels[l].arity - id->kept[l], l + 1);
        mem_free(t);
        t = less;
    }
    *out = t;
    return rc;
}

/* ---- trials ---- */

int plan_trial_groups(const struct plan_search *s, const struct plan_trial *t)
{
    if (t->uneven)
        return t->uneven->ordered + t->uneven->mixed;
    return plan_tree_groups(s->grouped[t->id.grouped]) - plan_tree_groups(s->grouped[0]);
}

int plan_trial_removes(const struct plan_search *s, const struct plan_trial *t)
{
    const struct topo_tree *whole = s->grouped[t->id.grouped];
    int n = 0;

    if (t->uneven)
        return 1;
    for (int l = 0; l + 1 < whole->n_levels; l++)
        n += t->id.kept[l] < whole->levels[l].arity;
    return n;
}

int64_t plan_trial_complexity(const struct plan_search *s, const struct plan_trial *t)
{
    int64_t n = plan_trial_groups(s, t) * TOPO_LEVELS_MAX + plan_trial_removes(s, t);

    return (n * (UINT16_MAX + 1) + t->n_threads) * (UINT16_MAX + 1) + t->n_ranks;
}

/* The number of ranks, the memory nodes of all of them, and how many each has. */
static uint64_t group_key(const struct topo_config *c)
{
    const struct topo_config whole = {
        .tree = c->tree, .n_ranks = 1, .n_threads = c->n_ranks * c->n_threads};
    uint64_t key = (uint64_t)c->n_ranks;
    int nodes[64], n = topo_config_nodes(&whole, 0, nodes, 64);

    for (int i = 0; i < n && i < 64; i++)
        key = key * 1000003 + (uint64_t)nodes[i] + 1;
    return key * 1000003 + (uint64_t)topo_config_nodes(c, 0, nodes, 1);
}

bool plan_trial_discarded(const struct plan_search *s, int trial)
{
    int64_t misses;

    return s->o->patience && trial != s->fastest &&
           map_find(&s->groups, s->trials[trial].group, &misses) &&
           misses >= s->o->patience;
}

MUST static int count_first(struct plan_search *s, int trial)
{
    const struct plan_trial *t = &s->trials[trial];
    int64_t misses = 0;

    if (s->fastest < 0 || t->seconds < s->trials[s->fastest].seconds) {
        s->fastest = trial;
        return map_put(&s->groups, t->group, 0);
    }
    map_find(&s->groups, t->group, &misses);
    return map_put(&s->groups, t->group, misses + 1);
}

int plan_trial_find(struct plan_search *s, const struct topo_config *c,
                    const struct plan_tree_id *id, int *trial)
{
    uint64_t key = topo_config_key(c);
    int64_t found;
    int rc;

    if (map_find(&s->configs, key, &found)) {
        *trial = (int)found;
        return OK;
    }
    rc = widen((void **)&s->trials, s->n_trials, &s->trials_size, sizeof(s->trials[0]));
    if (rc == OK)
        rc = map_put(&s->configs, key, s->n_trials);
    if (rc != OK)
        return rc;
    *trial = s->n_trials++;
    s->trials[*trial] = (struct plan_trial){.id = *id,
                                            .level = c->level,
                                            .n_ranks = c->n_ranks,
                                            .n_threads = c->tree->n_pus,
                                            .seconds = INFINITY};
    if (s->o->patience)
        s->trials[*trial].group = group_key(c);
    return OK;
}

int plan_trial_measure(struct plan_search *s, int trial, const struct topo_config *c,
                       double *seconds)
{
    struct plan_trial *t = &s->trials[trial];
    int rc;

    *seconds = NAN;
    if (t->refused || plan_search_spent(s))
        return OK;
    rc = s->e->measure(s->e->ctx, c, t->n, seconds);
    if (rc == ERR_UNSUPPORTED) {
        *seconds = NAN;
        t->refused = true;
        s->counts->n_refused++;
        return OK;
    }
    if (rc != OK)
        return rc;
    if (!isfinite(*seconds) || *seconds <= 0)
        return err_set(ERR_ARG,
                       "a measurement of %d x %d threads: expected seconds above 0, "
                       "found %g",
                       c->n_ranks, c->n_threads, *seconds);
    s->counts->n_measurements++;
    s->counts->measured_s += *seconds;
    s->counts->n_configs += t->n == 0;
    if (t->n++ > 0)
        return OK;
    t->seconds = *seconds;
    return s->o->patience ? count_first(s, trial) : OK;
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

/* Report the k fastest. If the chosen one is not among them, it replaces the last. */
static int report(struct plan_tree_result *out, struct plan_decision *d,
                  const struct plan_search *s)
{
    int n = d->n < s->o->k ? d->n : (int)s->o->k;

    out->top = mem_new(MEM_OTHER, (size_t)n, sizeof(*out->top));
    if (!out->top)
        return ERR_NOMEM;
    for (int i = 0; i < n; i++) {
        int from = i == n - 1 && d->chosen >= n ? d->chosen : i;
        struct plan_candidate *v = &d->v[from];

        out->top[i] = *v;
        v->tree = NULL;
        out->n_top = i + 1;
        if (from == d->chosen)
            out->best = i;
    }
    out->latent = d->latent;
    return OK;
}

int plan_tree_search(struct plan_tree_result *out, const struct topo_tree *fundamental,
                     const struct topo_limits *limits, const struct plan_evaluation *e,
                     const struct plan_tree_search_opts *o)
{
    static const struct topo_limits none;
    struct plan_search s = {.e = e,
                            .limits = limits ? limits : &none,
                            .o = o,
                            .counts = &out->counts,
                            .fastest = -1,
                            .start_ns = clock_ns()};
    struct plan_decision d = {0};
    int rc;

    *out = (struct plan_tree_result){.counts.complete = true};
    rc = check(fundamental, e, o);
    if (rc == OK) {
        plan_search_stage(&s, 0.5);
        rc = open_closure(&s, fundamental);
    }
    if (rc == OK)
        rc = plan_search_explore(&s);
    if (rc == OK && o->uneven && o->remove && !o->all_cores && !o->random)
        rc = plan_search_uneven(&s);
    if (rc == OK)
        rc = plan_search_choose(&d, &s);
    out->counts.complete = out->counts.complete && !s.spent;
    out->counts.wall_s = wall_s(&s);
    if (rc == OK)
        rc = plan_search_explain(&out->explain, &s, &d);
    if (rc == OK)
        rc = report(out, &d, &s);
    plan_decision_free(&d);
    for (int i = 0; i < s.n_grouped; i++)
        mem_free(s.grouped[i]);
    mem_free(s.grouped);
    for (int i = 0; i < s.n_trials; i++)
        mem_free(s.trials[i].uneven);
    mem_free(s.trials);
    map_fini(&s.configs);
    map_fini(&s.groups);
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
