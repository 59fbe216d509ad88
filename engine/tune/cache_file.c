/* The file of a schedule cache: groups of one matrix each, and a checksum over them, so
 * that a file that was cut, merged or edited by halves is refused. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "tune/cache_impl.h"

#define VERSION    2
#define MAX_BYTES  (64 << 20)
#define M_MAX      (1 << 24)
#define EXTENT_MAX ((int64_t)1 << 40)

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
    int rc = OK;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == OK; i++)
        rc = json_get_int(o, rows[i].key, rows[i].min, rows[i].max, &v[i], where);
    if (rc == OK)
        rc = json_get_str(o, "order", &order, where);
    if (rc != OK)
        return rc;
    *s = (struct kern_schedule){.mr = (int)v[0],
                                .np = (int)v[1],
                                .bm = v[2],
                                .bn = v[3],
                                .bk = v[4],
                                .pm = (int)v[5],
                                .pn = (int)v[6],
                                .pk = (int)v[7]};
    rc = kern_order_parse(order, &s->order);
    return rc == OK ? OK : err_set(ERR_FORMAT, "%s: order: found \"%s\"", where, order);
}

static int read_entry(struct tune_group *g, const json_t *o, const char *where)
{
    struct tune_entry e = {0}, *to;
    int64_t n_runs = 0, after = g->n_entries ? g->entries[g->n_entries - 1].m : 0;
    int rc;

    rc = json_get_int(o, "m", after + 1, M_MAX, &e.m, where);
    if (rc == OK)
        rc = read_schedule(&e.s, o, where);
    if (rc == OK)
        rc = json_get_int(o, "n_runs", 0, INT32_MAX, &n_runs, where);
    if (rc == OK)
        rc = json_get_f64(o, "estimate_s", &e.t.estimate, where);
    if (rc == OK)
        rc = json_get_f64(o, "lo_s", &e.t.lo, where);
    if (rc == OK)
        rc = json_get_f64(o, "hi_s", &e.t.hi, where);
    if (rc != OK)
        return rc;
    e.t.n = (int)n_runs;
    to = tune_group_entry(g, e.m);
    if (!to)
        return ERR_NOMEM;
    *to = e;
    return OK;
}

static int read_group(struct tune_group *g, const json_t *o, const char *path, size_t i)
{
    const json_t *list = NULL, *one;
    char where[600], type[8] = "";
    size_t at;
    int rc;

    snprintf(where, sizeof(where), "%s: groups[%zu]", path, i);
    rc = json_copy_str(o, "cpu", g->key.cpu, sizeof(g->key.cpu), where);
    if (rc == OK)
        rc = json_copy_str(o, "microcode", g->key.microcode, sizeof(g->key.microcode),
                           where);
    if (rc == OK)
        rc = json_copy_str(o, "commit", g->key.commit, sizeof(g->key.commit), where);
    if (rc == OK)
        rc = json_copy_str(o, "cpus", g->cpus, sizeof(g->cpus), where);
    if (rc == OK)
        rc = json_copy_str(o, "variant", g->variant, sizeof(g->variant), where);
    if (rc == OK)
        rc = json_copy_str(o, "weight_type", type, sizeof(type), where);
    if (rc == OK && kern_type_parse(type, &g->type) != OK)
        rc = err_set(ERR_FORMAT, "%s: weight_type: found \"%s\"", where, type);
    if (rc == OK)
        rc = json_get_int(o, "n", 1, EXTENT_MAX, &g->n, where);
    if (rc == OK)
        rc = json_get_int(o, "k", 1, EXTENT_MAX, &g->k, where);
    if (rc == OK)
        rc = json_get_int(o, "k_unit", 0, EXTENT_MAX, &g->k_unit, where);
    if (rc == OK)
        rc = json_get_arr(o, "schedules", &list, where);
    if (rc != OK)
        return rc;
    json_array_foreach(list, at, one)
    {
        snprintf(where, sizeof(where), "%s: groups[%zu].schedules[%zu]", path, i, at);
        rc = read_entry(g, one, where);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static int check_whole(const json_t *root, const json_t *groups, const char *path)
{
    const char *wanted = "";
    int64_t version = 0;
    char sum[17];
    int rc;

    rc = json_get_int(root, "version", VERSION, VERSION, &version, path);
    if (rc == OK)
        rc = json_get_str(root, "checksum", &wanted, path);
    if (rc == OK)
        rc = json_checksum(groups, sum);
    if (rc == OK && strcmp(sum, wanted) != 0)
        rc = err_set(ERR_FORMAT,
                     "%s: checksum: the file says %.16s, its schedules have %s", path,
                     wanted, sum);
    return rc;
}

int tune_cache_parse(struct tune_cache *c, const json_t *root, const char *where)
{
    const json_t *groups = NULL, *one;
    size_t i;
    int rc = OK;

    if (!json_is_object(root))
        return err_set(ERR_FORMAT, "%s: expected an object", where);
    rc = json_get_arr(root, "groups", &groups, where);
    if (rc == OK)
        rc = check_whole(root, groups, where);
    if (rc != OK)
        return rc;
    json_array_foreach(groups, i, one)
    {
        struct tune_group *g = tune_cache_add_group(c);

        rc = g ? read_group(g, one, where, i) : ERR_NOMEM;
        if (rc != OK)
            break;
    }
    return rc;
}

int tune_cache_read(struct tune_cache *c)
{
    json_t *root = NULL;
    int rc = json_read_file(&root, c->path, MAX_BYTES);

    if (rc == OK)
        rc = tune_cache_parse(c, root, c->path);
    json_decref(root);
    return rc;
}

/* ---- writing ---- */

static json_t *entry_json(const struct tune_entry *e)
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

static json_t *group_json(const struct tune_group *g)
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
static int merge_group(struct tune_cache *c, const struct tune_group *from)
{
    struct tune_group *g = NULL;
    struct tune_entry *e;

    for (int i = 0; i < from->n_entries; i++) {
        if (!from->entries[i].put)
            continue;
        if (!g)
            g = tune_cache_find(c, from);
        if (!g) {
            g = tune_cache_add_group(c);
            if (!g)
                return ERR_NOMEM;
            *g = *from;
            g->entries = NULL;
            g->n_entries = g->capacity = 0;
        }
        e = tune_group_entry(g, from->entries[i].m);
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
