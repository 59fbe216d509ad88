/* What was measured, by configuration, and the budget; trees as recipes. */
#include "plan/tree_search_parts.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* A closure beyond this is cut off: 100,000 trees of a few hundred CPUs are 200 MB. The
 * largest of the real machines tried has a quarter of it. */
#define GROUPED_MAX 60000

int plan_tree_groups(const struct topo_tree *t)
{
    int n = 0;

    for (int l = 0; l < t->n_levels; l++)
        n += (t->levels[l].kinds & TOPO_GROUP) != 0;
    return n;
}

static int keep_grouped(void *arg, const struct topo_tree *t)
{
    struct plan_trials *b = arg;
    size_t bytes = sizeof(*t) + (size_t)t->n_pus * sizeof(t->pus[0]);
    struct topo_tree *copy;

    if (b->n_grouped == GROUPED_MAX || (b->n_grouped && plan_trials_spent(b))) {
        b->counts->complete = false;
        return ERR_CANCELED;
    }
    if (b->n_grouped == b->grouped_size) {
        int size = b->grouped_size ? 2 * b->grouped_size : 64;
        void *wider =
            mem_resize(MEM_OTHER, b->grouped, (size_t)size, sizeof(b->grouped[0]));

        if (!wider)
            return ERR_NOMEM;
        b->grouped = wider;
        b->grouped_size = size;
    }
    copy = mem_new(MEM_OTHER, 1, bytes);
    if (!copy)
        return ERR_NOMEM;
    memcpy(copy, t, bytes);
    b->grouped[b->n_grouped++] = copy;
    return OK;
}

/* Few groups first, otherwise as the closure gave them: a tree of few groups explains a
 * machine with less, and there are far fewer of them. */
static int sort_grouped(struct plan_trials *b)
{
    struct topo_tree **sorted = mem_new(MEM_OTHER, (size_t)b->n_grouped, sizeof(*sorted));
    int n = 0;

    if (!sorted)
        return ERR_NOMEM;
    for (int groups = 0; n < b->n_grouped; groups++)
        for (int i = 0; i < b->n_grouped; i++)
            if (plan_tree_groups(b->grouped[i]) == groups)
                sorted[n++] = b->grouped[i];
    mem_free(b->grouped);
    b->grouped = sorted;
    b->grouped_size = b->n_grouped;
    return OK;
}

int plan_trials_open(struct plan_trials *b, const struct topo_tree *fundamental,
                     bool group)
{
    int rc;

    if (fundamental->n_pus > UINT16_MAX)
        return err_set(ERR_LIMIT, "a machine of %d CPUs: a search takes at most %d",
                       fundamental->n_pus, UINT16_MAX);
    rc = group ? topo_tree_closure(fundamental, keep_grouped, b)
               : keep_grouped(b, fundamental);
    if (rc == ERR_CANCELED && b->n_grouped)
        rc = OK;
    if (rc == OK)
        rc = sort_grouped(b);
    b->counts->n_grouped = b->n_grouped;
    return rc;
}

void plan_trials_close(struct plan_trials *b)
{
    for (int i = 0; i < b->n_grouped; i++)
        mem_free(b->grouped[i]);
    mem_free(b->grouped);
    mem_free(b->entries);
    map_fini(&b->configs);
    *b = (struct plan_trials){0};
}

bool plan_trials_spent(struct plan_trials *b)
{
    if (b->stop_at && b->counts->n_measurements >= b->stop_at)
        b->spent = true;
    if (b->stop_s > 0 && (double)(clock_ns() - b->start_ns) * 1e-9 >= b->stop_s)
        b->spent = true;
    return b->spent;
}

struct plan_tree_id plan_tree_id_whole(const struct plan_trials *b, int grouped)
{
    struct plan_tree_id r = {.grouped = grouped};

    for (int l = 0; l < b->grouped[grouped]->n_levels; l++)
        r.kept[l] = (uint16_t)b->grouped[grouped]->levels[l].arity;
    return r;
}

int plan_tree_id_tree(struct topo_tree **out, const struct plan_trials *b,
                      const struct plan_tree_id *r)
{
    const struct topo_tree *whole = b->grouped[r->grouped];
    size_t bytes = sizeof(*whole) + (size_t)whole->n_pus * sizeof(whole->pus[0]);
    struct topo_tree *t = mem_new(MEM_OTHER, 1, bytes), *next;
    int rc = t ? OK : ERR_NOMEM;

    *out = NULL;
    if (t)
        memcpy(t, whole, bytes);
    for (int l = 0; rc == OK && l + 1 < whole->n_levels; l++) {
        int n = whole->levels[l].arity - r->kept[l];

        if (!n)
            continue;
        rc = topo_tree_remove(&next, t, n, l + 1);
        if (rc == OK) {
            mem_free(t);
            t = next;
        }
    }
    if (rc == OK)
        *out = t, t = NULL;
    mem_free(t);
    return rc;
}

int plan_trial_simpler(const struct plan_trial *a, const struct plan_trial *b)
{
    if (a->n_groups != b->n_groups)
        return a->n_groups - b->n_groups;
    if (a->n_removes != b->n_removes)
        return a->n_removes - b->n_removes;
    return a->n_threads - b->n_threads;
}

double plan_trial_mean(const struct plan_trial *e)
{
    return e->n && !e->refused ? e->sum / e->n : INFINITY;
}

static int entry_add(struct plan_trials *b, const struct plan_trial *e)
{
    if (b->n_entries == b->entries_size) {
        int size = b->entries_size ? 2 * b->entries_size : 256;
        void *wider =
            mem_resize(MEM_OTHER, b->entries, (size_t)size, sizeof(b->entries[0]));

        if (!wider)
            return ERR_NOMEM;
        b->entries = wider;
        b->entries_size = size;
    }
    b->entries[b->n_entries] = *e;
    if (map_put(&b->configs, e->key, b->n_entries) != OK)
        return ERR_NOMEM;
    b->n_entries++;
    return OK;
}

int plan_trials_entry(struct plan_trials *b, const struct topo_config *c,
                      const struct plan_tree_id *r, int *entry, bool *is_new)
{
    const struct topo_tree *whole = b->grouped[r->grouped];
    struct plan_trial e = {.key = topo_config_key(c),
                           .from = *r,
                           .level = c->level,
                           .n_threads = c->tree->n_pus};
    int64_t found;
    int rc = OK;

    e.n_groups = plan_tree_groups(whole) - plan_tree_groups(b->grouped[0]);
    for (int l = 0; l < whole->n_levels; l++)
        e.n_removes += r->kept[l] < whole->levels[l].arity;
    *is_new = !map_find(&b->configs, e.key, &found);
    if (*is_new) {
        found = b->n_entries;
        rc = entry_add(b, &e);
    } else if (plan_trial_simpler(&e, &b->entries[found]) < 0) {
        b->entries[found].from = e.from;
        b->entries[found].level = e.level;
        b->entries[found].n_groups = e.n_groups;
        b->entries[found].n_removes = e.n_removes;
    }
    *entry = (int)found;
    return rc;
}

int plan_trials_measure(struct plan_trials *b, int entry, const struct topo_config *c,
                        int n, double *x, int *n_x)
{
    struct plan_trial *e = &b->entries[entry];
    double seconds = 0;
    int rc;

    if (n_x)
        *n_x = 0;
    for (int i = 0; i < n && !e->refused && !plan_trials_spent(b); i++) {
        rc = b->e->measure(b->e->ctx, c, e->n, &seconds);
        if (rc == ERR_UNSUPPORTED) {
            e->refused = true;
            b->counts->n_refused++;
            break;
        }
        if (rc != OK)
            return rc;
        if (!isfinite(seconds) || seconds <= 0)
            return err_set(ERR_ARG,
                           "a measurement of %d x %d threads: expected seconds above 0, "
                           "found %g",
                           c->n_ranks, c->n_threads, seconds);
        b->counts->n_measurements++;
        b->counts->n_configs += e->n == 0;
        e->n++;
        e->sum += seconds;
        if (x)
            x[(*n_x)++] = seconds;
    }
    return OK;
}
