#include "tune/cache_impl.h"

#include <string.h>

#include "base/mem.h"

/* ---- the memory of it ---- */

struct tune_group *tune_cache_add_group(struct tune_cache *c)
{
    if (c->n_groups == c->capacity) {
        int capacity = c->capacity ? 2 * c->capacity : 8;
        void *grown =
            mem_resize(MEM_OTHER, c->groups, (size_t)capacity, sizeof(*c->groups));

        if (!grown)
            return NULL;
        c->groups = grown;
        c->capacity = capacity;
    }
    return &c->groups[c->n_groups++];
}

struct tune_entry *tune_group_entry(struct tune_group *g, int64_t m)
{
    int i = g->n_entries;

    while (i > 0 && g->entries[i - 1].m >= m)
        i--;
    if (i < g->n_entries && g->entries[i].m == m)
        return &g->entries[i];
    if (g->n_entries == g->capacity) {
        int capacity = g->capacity ? 2 * g->capacity : 32;
        void *grown =
            mem_resize(MEM_OTHER, g->entries, (size_t)capacity, sizeof(*g->entries));

        if (!grown)
            return NULL;
        g->entries = grown;
        g->capacity = capacity;
    }
    memmove(&g->entries[i + 1], &g->entries[i],
            (size_t)(g->n_entries - i) * sizeof(*g->entries));
    g->n_entries++;
    memset(&g->entries[i], 0, sizeof(*g->entries));
    g->entries[i].m = m;
    return &g->entries[i];
}

int tune_cache_use(struct tune_cache *c, const int *cpus, int n_threads)
{
    if (n_threads < 1 || n_threads > CPU_MAX)
        return err_set(ERR_ARG, "schedules for %d threads, expected 1 to %d", n_threads,
                       CPU_MAX);
    c->n_threads = n_threads;
    memcpy(c->cpus, cpus, (size_t)n_threads * sizeof(*cpus));
    return OK;
}

int tune_cache_n(const struct tune_cache *c)
{
    int n = 0;

    for (int i = 0; i < c->n_groups; i++)
        n += c->groups[i].n_entries;
    return n;
}

int tune_cache_of_json(struct tune_cache **out, const json_t *o, const char *where)
{
    struct tune_cache *c = mem_new(MEM_OTHER, 1, sizeof(*c));
    int rc = c ? OK : ERR_NOMEM;

    *out = NULL;
    if (rc == OK) {
        tune_key_here(&c->key);
        rc = o ? tune_cache_parse(c, o, where) : OK;
    }
    if (rc == OK)
        *out = c, c = NULL; /* the caller's now */
    tune_cache_close(&c);
    return rc;
}

int tune_cache_open_as(struct tune_cache **out, const char *path,
                       const struct tune_key *key, const int *cpus, int n_threads)
{
    struct tune_cache *c = mem_new(MEM_OTHER, 1, sizeof(*c));
    int rc;

    *out = NULL;
    if (!c)
        return ERR_NOMEM;
    c->key = *key;
    rc = tune_cache_use(c, cpus, n_threads);
    if (rc == OK) {
        c->path = mem_strdup(MEM_OTHER, path);
        rc = c->path ? tune_cache_read(c) : ERR_NOMEM;
    }
    if (rc == ERR_NOTFOUND) {
        err_clear();
        rc = OK;
    }
    if (rc == OK)
        *out = c, c = NULL; /* the caller's now */
    tune_cache_close(&c);
    return rc;
}

int tune_cache_open(struct tune_cache **out, const char *path, const int *cpus,
                    int n_threads)
{
    struct tune_key key;

    tune_key_here(&key);
    return tune_cache_open_as(out, path, &key, cpus, n_threads);
}

void tune_cache_close(struct tune_cache **c)
{
    struct tune_cache *old = *c;

    if (!old)
        return;
    for (int i = 0; i < old->n_groups; i++)
        mem_free(old->groups[i].entries);
    mem_free(old->groups);
    mem_free(old->path);
    mem_free(old);
    *c = NULL;
}

/* ---- finding ---- */

/* What a group is for, as it would stand in one. */
static void group_key(const struct tune_cache *c, const struct kern_variant *v,
                      const struct kern_mat *w, int n_threads, struct tune_group *out)
{
    memset(out, 0, sizeof(*out));
    out->key = c->key;
    cpu_list_print(c->cpus, n_threads, out->cpus, sizeof(out->cpus));
    strncpy(out->variant, v->name, sizeof(out->variant) - 1);
    out->type = w->type;
    out->n = w->n;
    out->k = w->k;
    out->k_unit = w->n_units > 1 ? w->k_unit : 0;
}

static void mat_of(const struct tune_shape *s, struct kern_mat *w)
{
    kern_mat_layout(w, (enum kern_type)(s->v->op - KERN_GEMM_F32), s->n, s->k, s->k_unit);
}

struct tune_group *tune_cache_find(const struct tune_cache *c, const struct tune_group *x)
{
    for (int i = 0; i < c->n_groups; i++) {
        struct tune_group *g = &c->groups[i];

        if (!strcmp(g->key.cpu, x->key.cpu) &&
            !strcmp(g->key.microcode, x->key.microcode) &&
            !strcmp(g->key.commit, x->key.commit) && !strcmp(g->cpus, x->cpus) &&
            !strcmp(g->variant, x->variant) && g->type == x->type && g->n == x->n &&
            g->k == x->k && g->k_unit == x->k_unit)
            return g;
    }
    return NULL;
}

/* The group of this shape with the thread set; NULL: there is none. *x: its key. */
static struct tune_group *group_of(const struct tune_cache *c,
                                   const struct tune_shape *shape, struct tune_group *x)
{
    struct kern_mat w;

    mat_of(shape, &w);
    group_key(c, shape->v, &w, c->n_threads, x);
    return tune_cache_find(c, x);
}

int tune_cache_put(struct tune_cache *c, const struct tune_shape *shape,
                   const struct kern_schedule *s, const struct measure_report *t)
{
    struct tune_group x, *g = group_of(c, shape, &x);
    struct tune_entry *e;

    if (!g) {
        g = tune_cache_add_group(c);
        if (!g)
            return ERR_NOMEM;
        *g = x;
    }
    e = tune_group_entry(g, shape->m);
    if (!e)
        return ERR_NOMEM;
    e->s = *s;
    e->t = t ? *t : (struct measure_report){0};
    e->put = true;
    return OK;
}

static bool legal(const struct kern_schedule *s, const struct kern_variant *v,
                  const struct kern_mat *w, int64_t m, int n_threads)
{
    bool ok = kern_schedule_check(s, v, w, m, n_threads) == OK;

    if (!ok)
        err_clear();
    return ok;
}

/* The entry of exactly this shape, if it is legal. */
static const struct tune_entry *entry_of(const struct tune_cache *c,
                                         const struct tune_shape *shape)
{
    struct tune_group x;
    const struct tune_group *g = group_of(c, shape, &x);
    struct kern_mat w;

    mat_of(shape, &w);
    for (int i = 0; g && i < g->n_entries; i++) {
        const struct tune_entry *e = &g->entries[i];

        if (e->m == shape->m && legal(&e->s, shape->v, &w, e->m, c->n_threads))
            return e;
    }
    return NULL;
}

bool tune_cache_has(const struct tune_cache *c, const struct tune_shape *shape,
                    struct kern_schedule *out)
{
    const struct tune_entry *e = entry_of(c, shape);

    if (e)
        *out = e->s;
    return e != NULL;
}

int tune_cache_copy(struct tune_cache *to, const struct tune_cache *from,
                    const struct tune_shape *shape, bool *found)
{
    const struct tune_entry *e = entry_of(from, shape);

    *found = e != NULL;
    return e ? tune_cache_put(to, shape, &e->s, e->t.n > 0 ? &e->t : NULL) : OK;
}

/* ---- dispatch ---- */

/* An entry for m rows or fewer, made to fit m: slice and scheme stay, and the driver cuts
 * what is left over into blocks of nearly equal height. But one block of rows that would
 * become two reads all weights twice, so it grows to hold m, or does not serve. */
static bool serves(const struct tune_entry *e, const struct kern_variant *v,
                   const struct kern_mat *w, int64_t m, int n_threads,
                   struct kern_schedule *out)
{
    struct kern_schedule s = e->s;

    if (m != e->m && e->m < TUNE_STABLE_ROWS && m >= 2 * e->m)
        return false;
    if (e->m <= s.mr && m > s.mr) {
        if (m > kern_gemm_rows(v, s.np))
            return false;
        s.mr = (int)m;
        s.bm = s.bm < m ? m : s.bm;
    }
    if (!legal(&s, v, w, m, n_threads))
        return false;
    *out = s;
    return true;
}

int tune_table(const struct tune_cache *c, const struct kern_variant *v,
               const struct kern_mat *w, int64_t m_max, int n_threads,
               struct kern_schedule *out, int64_t *n_tuned)
{
    const struct tune_group *g = NULL;
    struct tune_group x;
    int64_t n = 0;
    int at = -1; /* the entry of the largest tuned m that is not above */

    if (c && (n_threads < 1 || n_threads > c->n_threads))
        return err_set(ERR_ARG, "schedules for %d threads, the cache was opened for %d",
                       n_threads, c->n_threads);
    if (c) {
        group_key(c, v, w, n_threads, &x);
        g = tune_cache_find(c, &x);
    }
    for (int64_t m = 1; m <= m_max; m++) {
        while (g && at + 1 < g->n_entries && g->entries[at + 1].m <= m)
            at++;
        if (at >= 0 && serves(&g->entries[at], v, w, m, n_threads, &out[m - 1]))
            n++;
        else
            kern_schedule_default(&out[m - 1], v, w, m, n_threads);
    }
    if (n_tuned)
        *n_tuned = n;
    return OK;
}
