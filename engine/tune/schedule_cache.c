#include "tune/schedule_cache.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/build.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cpu/cpu.h"

#define VERSION    2
#define MAX_BYTES  (64 << 20)
#define M_MAX      (1 << 24)
#define EXTENT_MAX ((int64_t)1 << 40)

struct entry {
    int64_t m;
    struct kern_schedule s;
    struct measure_report t; /* n = 0: not measured; best and n_disturbed are not kept */
    bool put;                /* by this process: it replaces what the file holds */
};

/* The schedules of one matrix on one thread set. */
struct group {
    struct tune_key key;
    char cpus[CPU_MAX * 5 + 1]; /* "0-3,8" */
    char variant[32];
    enum kern_type type;
    int64_t n, k, k_unit;  /* k_unit: 0 where not split along K */
    struct entry *entries; /* ascending m */
    int n_entries, capacity;
};

struct tune_cache {
    char *path;
    struct tune_key key; /* of this machine and build */
    int cpus[CPU_MAX], n_threads;
    struct group *groups;
    int n_groups, capacity;
};

/* ---- the memory of it ---- */

/* An empty group, zeroed but for nothing; NULL: ERR_NOMEM. Lent until the next one. */
static struct group *add_group(struct tune_cache *c)
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

/* The entry for m, made where there is none; NULL: ERR_NOMEM. */
static struct entry *entry_at(struct group *g, int64_t m)
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

/* The group of the same key as x; NULL: there is none. Lent until the next one is added. */
static struct group *find_group(const struct tune_cache *c, const struct group *x)
{
    for (int i = 0; i < c->n_groups; i++) {
        struct group *g = &c->groups[i];

        if (!strcmp(g->key.cpu, x->key.cpu) &&
            !strcmp(g->key.microcode, x->key.microcode) &&
            !strcmp(g->key.commit, x->key.commit) && !strcmp(g->cpus, x->cpus) &&
            !strcmp(g->variant, x->variant) && g->type == x->type && g->n == x->n &&
            g->k == x->k && g->k_unit == x->k_unit)
            return g;
    }
    return NULL;
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

/* The file has groups of one matrix each, and a checksum over them, so that one that was cut,
 * merged or edited by halves is refused. */

/* ---- reading ---- */

static int read_schedule(struct kern_schedule *s, const json_t *o, const char *where)
{
    const struct {
        const char *key;
        int64_t min, max;
    } rows[] = {{"mr", 1, 64},         {"np", 1, KERN_NP_MAX}, {"bm", 1, EXTENT_MAX},
                {"bn", 1, EXTENT_MAX}, {"bk", 2, EXTENT_MAX},  {"pm", 1, CPU_MAX},
                {"pn", 1, CPU_MAX},    {"pk", 1, CPU_MAX}};
    int64_t v[sizeof(rows) / sizeof(rows[0])];
    const char *order = "";

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        TRY(json_get_int(o, rows[i].key, rows[i].min, rows[i].max, &v[i], where));
    TRY(json_get_str(o, "order", &order, where));
    *s = (struct kern_schedule){.mr = (int)v[0],
                                .np = (int)v[1],
                                .bm = v[2],
                                .bn = v[3],
                                .bk = v[4],
                                .pm = (int)v[5],
                                .pn = (int)v[6],
                                .pk = (int)v[7]};
    if (kern_order_parse(order, &s->order) != OK)
        return err_set(ERR_FORMAT, "%s: order: found \"%s\"", where, order);
    return OK;
}

static int read_entry(struct group *g, const json_t *o, const char *where)
{
    struct entry e = {0}, *to;
    int64_t n_runs, after = g->n_entries ? g->entries[g->n_entries - 1].m : 0;

    TRY(json_get_int(o, "m", after + 1, M_MAX, &e.m, where));
    TRY(read_schedule(&e.s, o, where));
    TRY(json_get_int(o, "n_runs", 0, INT32_MAX, &n_runs, where));
    TRY(json_get_f64(o, "estimate_s", &e.t.estimate, where));
    TRY(json_get_f64(o, "lo_s", &e.t.lo, where));
    TRY(json_get_f64(o, "hi_s", &e.t.hi, where));
    e.t.n = (int)n_runs;
    to = entry_at(g, e.m);
    if (!to)
        return ERR_NOMEM;
    *to = e;
    return OK;
}

static int read_group(struct group *g, const json_t *o, const char *path, size_t i)
{
    const json_t *list = NULL, *one;
    char where[600], type[8] = "";
    size_t at;

    snprintf(where, sizeof(where), "%s: groups[%zu]", path, i);
    TRY(json_copy_str(o, "cpu", g->key.cpu, sizeof(g->key.cpu), where));
    TRY(json_copy_str(o, "microcode", g->key.microcode, sizeof(g->key.microcode), where));
    TRY(json_copy_str(o, "commit", g->key.commit, sizeof(g->key.commit), where));
    TRY(json_copy_str(o, "cpus", g->cpus, sizeof(g->cpus), where));
    TRY(json_copy_str(o, "variant", g->variant, sizeof(g->variant), where));
    TRY(json_copy_str(o, "weight_type", type, sizeof(type), where));
    if (kern_type_parse(type, &g->type) != OK)
        return err_set(ERR_FORMAT, "%s: weight_type: found \"%s\"", where, type);
    TRY(json_get_int(o, "n", 1, EXTENT_MAX, &g->n, where));
    TRY(json_get_int(o, "k", 1, EXTENT_MAX, &g->k, where));
    TRY(json_get_int(o, "k_unit", 0, EXTENT_MAX, &g->k_unit, where));
    TRY(json_get_arr(o, "schedules", &list, where));
    json_array_foreach(list, at, one)
    {
        snprintf(where, sizeof(where), "%s: groups[%zu].schedules[%zu]", path, i, at);
        TRY(read_entry(g, one, where));
    }
    return OK;
}

static int check_whole(const json_t *root, const json_t *groups, const char *path)
{
    const char *wanted = "";
    int64_t version;
    char sum[17];

    TRY(json_get_int(root, "version", VERSION, VERSION, &version, path));
    TRY(json_get_str(root, "checksum", &wanted, path));
    TRY(json_checksum(groups, sum));
    if (strcmp(sum, wanted) == 0)
        return OK;
    return err_set(ERR_FORMAT, "%s: checksum: the file says %.16s, its schedules have %s",
                   path, wanted, sum);
}

/* Add to c what the object of a file holds, which error lines call `where`. */
static int parse(struct tune_cache *c, const json_t *root, const char *where)
{
    const json_t *groups = NULL, *one;
    size_t i;

    if (!json_is_object(root))
        return err_set(ERR_FORMAT, "%s: expected an object", where);
    TRY(json_get_arr(root, "groups", &groups, where));
    TRY(check_whole(root, groups, where));
    json_array_foreach(groups, i, one)
    {
        struct group *g = add_group(c);

        if (!g)
            return ERR_NOMEM;
        TRY(read_group(g, one, where, i));
    }
    return OK;
}

/* The same of its file; ERR_NOTFOUND: there is none. */
static int read_cache(struct tune_cache *c)
{
    json_t *root = NULL;
    int rc = json_read_file(&root, c->path, MAX_BYTES);

    if (rc == OK)
        rc = parse(c, root, c->path);
    json_decref(root);
    return rc;
}

/* ---- opening ---- */

/* The commit comes from make, which asks for the newest that touched what is measured: a change of
 * the manual leaves tuned schedules valid. */
void tune_key_here(struct tune_key *out)
{
    struct cpu_info info;

    cpu_info_get(&info);
    memset(out, 0, sizeof(*out));
    snprintf(out->cpu, sizeof(out->cpu), "%s", info.model_name);
    snprintf(out->microcode, sizeof(out->microcode), "%s", info.microcode);
    snprintf(out->commit, sizeof(out->commit), "%s", build_info.kernels);
}

int tune_cache_of_json(struct tune_cache **out, const json_t *o, const char *where)
{
    struct tune_cache *c = mem_new(MEM_OTHER, 1, sizeof(*c));
    int rc = c ? OK : ERR_NOMEM;

    *out = NULL;
    if (rc == OK) {
        tune_key_here(&c->key);
        rc = o ? parse(c, o, where) : OK;
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
        rc = c->path ? read_cache(c) : ERR_NOMEM;
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

/* ---- writing ---- */

static json_t *entry_json(const struct entry *e)
{
    const struct kern_schedule *s = &e->s;

    return json_pack("{s:I, s:i, s:i, s:I, s:I, s:I, s:i, s:i, s:i, s:s, s:f, s:f, s:f, "
                     "s:i}",
                     "m", (json_int_t)e->m, "mr", s->mr, "np", s->np, "bm",
                     (json_int_t)s->bm, "bn", (json_int_t)s->bn, "bk", (json_int_t)s->bk,
                     "pm", s->pm, "pn", s->pn, "pk", s->pk, "order",
                     kern_order_name(s->order), "estimate_s", e->t.estimate, "lo_s",
                     e->t.lo, "hi_s", e->t.hi, "n_runs", e->t.n);
}

static json_t *group_json(const struct group *g)
{
    json_t *list = json_array();

    for (int i = 0; i < g->n_entries; i++)
        if (json_array_append_new(list, entry_json(&g->entries[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "cpu",
                     g->key.cpu, "microcode", g->key.microcode, "commit", g->key.commit,
                     "cpus", g->cpus, "variant", g->variant, "weight_type",
                     kern_type_name(g->type), "n", (json_int_t)g->n, "k",
                     (json_int_t)g->k, "k_unit", (json_int_t)g->k_unit, "schedules",
                     list);
}

json_t *tune_cache_to_json(const struct tune_cache *c)
{
    json_t *groups = json_array(), *root = NULL;
    bool ok = groups != NULL;
    char sum[17];

    for (int i = 0; i < c->n_groups && ok; i++)
        ok = json_array_append_new(groups, group_json(&c->groups[i])) == 0;
    if (ok && json_checksum(groups, sum) == OK)
        root = json_pack("{s:i, s:s, s:O}", "version", VERSION, "checksum", sum, "groups",
                         groups);
    json_decref(groups);
    return root;
}

static int write_cache(const struct tune_cache *c)
{
    json_t *root = tune_cache_to_json(c);
    int rc = root ? json_write_file(root, c->path)
                  : err_set(ERR_NOMEM, "%s: no memory for its text", c->path);

    json_decref(root);
    return rc;
}

/* Add to c what was put into this group. */
static int merge_group(struct tune_cache *c, const struct group *from)
{
    struct group *g = NULL;
    struct entry *e;

    for (int i = 0; i < from->n_entries; i++) {
        if (!from->entries[i].put)
            continue;
        if (!g)
            g = find_group(c, from);
        if (!g) {
            g = add_group(c);
            if (!g)
                return ERR_NOMEM;
            *g = *from;
            g->entries = NULL;
            g->n_entries = g->capacity = 0;
        }
        e = entry_at(g, from->entries[i].m);
        if (!e)
            return ERR_NOMEM;
        *e = from->entries[i];
    }
    return OK;
}

int tune_cache_save(const struct tune_cache *c)
{
    struct tune_cache *all = NULL;
    int lock, rc = file_lock_parent(&lock, c->path);

    if (rc == OK)
        rc = tune_cache_open_as(&all, c->path, &c->key, c->cpus, c->n_threads);
    for (int i = 0; rc == OK && i < c->n_groups; i++)
        rc = merge_group(all, &c->groups[i]);
    if (rc == OK)
        rc = write_cache(all);
    tune_cache_close(&all);
    if (lock >= 0)
        close(lock);
    return rc;
}

/* ---- finding ---- */

/* The key of a group, as an empty one of it. */
static void group_key(const struct tune_cache *c, const struct kern_variant *v,
                      const struct kern_mat *w, int n_threads, struct group *out)
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

/* The group of this shape with the thread set; NULL: there is none. *x: its key. */
static struct group *group_of(const struct tune_cache *c, const struct tune_shape *shape,
                              struct group *x)
{
    struct kern_mat w;

    mat_of(shape, &w);
    group_key(c, shape->v, &w, c->n_threads, x);
    return find_group(c, x);
}

int tune_cache_put(struct tune_cache *c, const struct tune_shape *shape,
                   const struct kern_schedule *s, const struct measure_report *t)
{
    struct group x, *g = group_of(c, shape, &x);
    struct entry *e;

    if (!g) {
        g = add_group(c);
        if (!g)
            return ERR_NOMEM;
        *g = x;
    }
    e = entry_at(g, shape->m);
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
static const struct entry *entry_of(const struct tune_cache *c,
                                    const struct tune_shape *shape)
{
    struct group x;
    const struct group *g = group_of(c, shape, &x);
    struct kern_mat w;

    mat_of(shape, &w);
    for (int i = 0; g && i < g->n_entries; i++) {
        const struct entry *e = &g->entries[i];

        if (e->m == shape->m && legal(&e->s, shape->v, &w, e->m, c->n_threads))
            return e;
    }
    return NULL;
}

bool tune_cache_has(const struct tune_cache *c, const struct tune_shape *shape,
                    struct kern_schedule *out)
{
    const struct entry *e = entry_of(c, shape);

    if (e)
        *out = e->s;
    return e != NULL;
}

int tune_cache_copy(struct tune_cache *to, const struct tune_cache *from,
                    const struct tune_shape *shape, bool *found)
{
    const struct entry *e = entry_of(from, shape);

    *found = e != NULL;
    return e ? tune_cache_put(to, shape, &e->s, e->t.n > 0 ? &e->t : NULL) : OK;
}

/* ---- dispatch ---- */

/* An entry for m rows or fewer, made to fit m: slice and scheme stay, and the driver cuts
 * what is left over into blocks of nearly equal height. But one block of rows that would
 * become two reads all weights twice, so it grows to hold m, or does not serve. */
static bool serves(const struct entry *e, const struct kern_variant *v,
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
    const struct group *g = NULL;
    struct group x;
    int64_t n = 0;
    int at = -1; /* the entry of the largest tuned m that is not above */

    if (c && (n_threads < 1 || n_threads > c->n_threads))
        return err_set(ERR_ARG, "schedules for %d threads, the cache was opened for %d",
                       n_threads, c->n_threads);
    if (c) {
        group_key(c, v, w, n_threads, &x);
        g = find_group(c, &x);
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
