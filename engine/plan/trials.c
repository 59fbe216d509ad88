#include "plan/trials.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- budget ---- */

double plan_trials_wall_s(const struct plan_trials *s)
{
    return (double)(clock_ns() - s->start_ns) * 1e-9;
}

void plan_trials_stage(struct plan_trials *s, double share)
{
    const struct plan_tree_search_opts *o = s->o;
    int64_t used = s->counts->n_measurements;

    s->stop_at = o->max_measurements
                     ? used + (int64_t)ceil(share * (double)(o->max_measurements - used))
                     : 0;
    s->stop_s = o->max_s > 0
                    ? plan_trials_wall_s(s) + share * (o->max_s - plan_trials_wall_s(s))
                    : 0;
    s->spent = false;
}

bool plan_trials_spent(struct plan_trials *s)
{
    if (s->stop_at && s->counts->n_measurements >= s->stop_at)
        s->spent = true;
    if (!s->spent && s->o->max_s > 0 && plan_trials_wall_s(s) >= s->stop_s)
        s->spent = true;
    return s->spent;
}

int64_t plan_trials_left(const struct plan_trials *s)
{
    int64_t used = s->counts->n_measurements;
    double n = s->stop_at ? (double)(s->stop_at - used) : INFINITY;

    if (s->o->max_s > 0)
        n = fmin(n, (s->stop_s - plan_trials_wall_s(s)) * (double)used /
                        fmax(plan_trials_wall_s(s), 1e-9));
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
    struct plan_trials *s = arg;
    int rc = widen((void **)&s->grouped, s->n_grouped, &s->grouped_size,
                   sizeof(s->grouped[0]));

    if (rc != OK)
        return rc;
    if (s->n_grouped == GROUPED_MAX || (s->n_grouped && plan_trials_spent(s))) {
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

int plan_trials_open(struct plan_trials *s, const struct topo_tree *fundamental)
{
    int rc;

    s->fastest = -1;
    s->start_ns = clock_ns();
    plan_trials_stage(s, 0.5);
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
    s->counts->group_s = plan_trials_wall_s(s);
    return rc;
}

void plan_trials_close(struct plan_trials *s)
{
    for (int i = 0; i < s->n_grouped; i++)
        mem_free(s->grouped[i]);
    mem_free(s->grouped);
    for (int i = 0; i < s->n_trials; i++)
        mem_free(s->trials[i].uneven);
    mem_free(s->trials);
    map_fini(&s->configs);
    map_fini(&s->groups);
}

struct plan_tree_id plan_tree_id_whole(const struct plan_trials *s, int grouped)
{
    struct plan_tree_id id = {.grouped = grouped};

    for (int l = 0; l < s->grouped[grouped]->n_levels; l++)
        id.kept[l] = (uint16_t)s->grouped[grouped]->levels[l].arity;
    return id;
}

int plan_tree_id_open(struct topo_tree **out, const struct plan_trials *s,
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

static int open_tree(struct topo_tree **out, const struct plan_trials *s,
                     const struct plan_trial *t)
{
    const struct plan_uneven *u = t->uneven;
    size_t at = 0, size;
    int rc;

    if (!u)
        return plan_tree_id_open(out, s, &t->id);
    rc = topo_tree_of_ranks(out, s->grouped[0]->machine, u->pus, t->n_ranks,
                            t->n_threads / t->n_ranks);
    if (rc != OK)
        return rc;
    size = sizeof((*out)->steps);
    for (int i = 0; i < u->n_nodes && at + 8 < size; i++)
        at += (size_t)snprintf((*out)->steps + at, size - at, "%s%d",
                               i ? "+" : "uneven(ranks ", u->ranks[i]);
    if (at + 32 < size)
        snprintf((*out)->steps + at, size - at, "%s)",
                 u->ordered ? ", measured cores" : "");
    return OK;
}

int plan_trial_config(struct topo_config *c, struct topo_tree **out,
                      const struct plan_trials *s, const struct plan_trial *t)
{
    int rc = open_tree(out, s, t);

    return rc == OK ? topo_config_cut(c, *out, t->level, s->limits) : rc;
}

int plan_trial_groups(const struct plan_trials *s, const struct plan_trial *t)
{
    if (t->uneven)
        return t->uneven->ordered + t->uneven->mixed;
    return plan_tree_groups(s->grouped[t->id.grouped]) - plan_tree_groups(s->grouped[0]);
}

int plan_trial_removes(const struct plan_trials *s, const struct plan_trial *t)
{
    const struct topo_tree *whole = s->grouped[t->id.grouped];
    int n = 0;

    if (t->uneven)
        return 1;
    for (int l = 0; l + 1 < whole->n_levels; l++)
        n += t->id.kept[l] < whole->levels[l].arity;
    return n;
}

int64_t plan_trial_complexity(const struct plan_trials *s, const struct plan_trial *t)
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

bool plan_trial_discarded(const struct plan_trials *s, int trial)
{
    int64_t misses;

    return s->o->patience && trial != s->fastest &&
           map_find(&s->groups, s->trials[trial].group, &misses) &&
           misses >= s->o->patience;
}

MUST static int count_first(struct plan_trials *s, int trial)
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

int plan_trial_find(struct plan_trials *s, const struct topo_config *c,
                    const struct plan_tree_id *id, int *trial)
{
    uint64_t key = topo_config_key(c);
    int64_t found;

    if (map_find(&s->configs, key, &found)) {
        *trial = (int)found;
        return OK;
    }
    TRY(widen((void **)&s->trials, s->n_trials, &s->trials_size, sizeof(s->trials[0])));
    TRY(map_put(&s->configs, key, s->n_trials));
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

int plan_trial_measure(struct plan_trials *s, int trial, const struct topo_config *c,
                       double *seconds)
{
    struct plan_trial *t = &s->trials[trial];
    int rc;

    *seconds = NAN;
    if (t->refused || plan_trials_spent(s))
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
