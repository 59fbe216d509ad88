/* Lists of events: reading them, and finding this processor's. */
#include <limits.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/home.h"
#include "base/json.h"
#include "base/name.h"
#include "characterize/counters/metrics.h"

#define LIST_BYTES_MAX (1 << 20)

/* ---- small checks ---- */

static int put_text(char *out, size_t n, const char *text, const char *where)
{
    if (strlen(text) >= n)
        return err_set(ERR_LIMIT, "%s: expected at most %zu letters, found \"%s\"", where,
                       n - 1, text);
    memcpy(out, text, strlen(text) + 1);
    return OK;
}

static int get_text(const json_t *o, const char *key, char *out, size_t n,
                    const char *where)
{
    const char *text;
    int rc = json_get_str(o, key, &text, where);

    return rc == OK ? put_text(out, n, text, where) : rc;
}

/* ---- parts of a list ---- */

static int read_match(struct counters_list *l, const json_t *root, const char *where)
{
    static const char *const keys[] = {"vendor", "family", "models", NULL};
    const json_t *o, *models = NULL;
    int64_t family = 0;

    TRY(json_get_obj(root, "match", &o, where));
    TRY(json_check_keys(o, keys, where));
    TRY(get_text(o, "vendor", l->vendor, sizeof(l->vendor), where));
    TRY(json_get_int(o, "family", 0, 1 << 16, &family, where));
    TRY(json_get_arr(o, "models", &models, where));
    if (json_array_size(models) > 32)
        return err_set(ERR_LIMIT, "%s: match.models: more than 32", where);
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *m = json_array_get(models, i);

        if (!json_is_integer(m) || json_integer_value(m) < 0 ||
            json_integer_value(m) > 1 << 16)
            return err_set(ERR_FORMAT, "%s: match.models: expected numbers", where);
        l->models[l->n_models++] = (int)json_integer_value(m);
    }
    l->family = (int)family;
    return OK;
}

static int read_event(struct counters_event *e, const char *name, const json_t *o,
                      const char *file)
{
    static const char *const keys[] = {"text", "source",     "scope",
                                       "papi", "perf_event", NULL};
    const char *scope = "", *text, *source = "", *papi = "";
    const json_t *names = NULL;
    char where[300];

    TRY(put_text(e->name, sizeof(e->name), name, file));
    snprintf(where, sizeof(where), "%s: events.%.40s", file, name);
    if (!json_is_object(o))
        return err_set(ERR_FORMAT, "%s: expected an object", where);
    TRY(json_check_keys(o, keys, where));
    TRY(json_get_str(o, "text", &text, where));
    TRY(json_get_str(o, "source", &source, where));
    if (!source[0])
        return err_set(ERR_FORMAT, "%s: source: expected a manual or list of events",
                       where);
    TRY(json_get_str(o, "scope", &scope, where));
    if (strcmp(scope, "thread") != 0 && strcmp(scope, "machine") != 0)
        return err_set(ERR_FORMAT, "%s: scope: expected thread or machine, found \"%s\"",
                       where, scope);
    TRY(json_opt_str(o, "papi", &papi, where));
    TRY(put_text(e->papi, sizeof(e->papi), papi, where));
    TRY(json_get_arr(o, "perf_event", &names, where));
    if (json_array_size(names) < 1 || json_array_size(names) > COUNTERS_ALIAS_MAX)
        return err_set(ERR_LIMIT, "%s: perf_event: expected 1 to %d names, found %zu",
                       where, COUNTERS_ALIAS_MAX, json_array_size(names));
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *s = json_string_value(json_array_get(names, i));

        TRY(s ? put_text(e->perf[e->n_perf++], COUNTERS_NAME_MAX, s, where)
              : err_set(ERR_FORMAT, "%s: perf_event: expected names", where));
    }
    e->machine = strcmp(scope, "machine") == 0;
    return OK;
}

/* The names of events as their indices. */
static int read_terms(const struct counters_list *l, const json_t *o, const char *key,
                      int *out, int *n, const char *where)
{
    const char *names[COUNTERS_EVENTS_MAX + 1] = {NULL};
    const json_t *a = NULL;

    TRY(json_get_arr(o, key, &a, where));
    for (int i = 0; i < l->n_events; i++)
        names[i] = l->events[i].name;
    if (json_array_size(a) < 1 || json_array_size(a) > COUNTERS_TERMS_MAX)
        return err_set(ERR_LIMIT, "%s: %s: expected 1 to %d events, found %zu", where,
                       key, COUNTERS_TERMS_MAX, json_array_size(a));
    for (size_t i = 0; i < json_array_size(a); i++) {
        const char *s = json_string_value(json_array_get(a, i));
        int k = s ? name_index(names, s) : -1;

        if (k < 0)
            return name_unknown(ERR_FORMAT, s ? s : "", names,
                                "%s: %s: unknown event \"%s\"", where, key, s ? s : "?");
        out[(*n)++] = k;
    }
    return OK;
}

static int read_metric(struct counters_list *l, struct counters_metric *m,
                       const json_t *o, const char *where)
{
    static const char *const given[] = {"unit", "num",    "den", "scale",
                                        "text", "spread", NULL};
    static const char *const missing[] = {"unit", "why", NULL};
    bool none = json_object_get(o, "why") != NULL;

    TRY(json_check_keys(o, none ? missing : given, where));
    TRY(get_text(o, "unit", m->unit, sizeof(m->unit), where));
    if (none) {
        TRY(get_text(o, "why", m->why, sizeof(m->why), where));
        return m->why[0] ? OK : err_set(ERR_FORMAT, "%s: why: expected a reason", where);
    }
    TRY(read_terms(l, o, "num", m->num, &m->n_num, where));
    TRY(read_terms(l, o, "den", m->den, &m->n_den, where));
    TRY(json_get_f64(o, "scale", &m->scale, where));
    if (m->scale <= 0)
        return err_set(ERR_FORMAT, "%s: scale: expected above 0, found %g", where,
                       m->scale);
    return json_opt_bool(o, "spread", &m->spread, where);
}

static int read_metrics(struct counters_list *l, const json_t *root, const char *path)
{
    const char *names[COUNTERS_N_METRICS + 1] = {NULL};
    const json_t *all;

    TRY(json_get_obj(root, "metrics", &all, path));
    for (int i = 0; i < COUNTERS_N_METRICS; i++)
        names[i] = counters_metric_name(i);
    TRY(json_check_keys(all, names, path));
    for (int i = 0; i < COUNTERS_N_METRICS; i++) {
        char where[300];
        const json_t *o;

        TRY(json_get_obj(all, names[i], &o, path));
        snprintf(where, sizeof(where), "%s: metrics.%s", path, names[i]);
        TRY(read_metric(l, &l->metrics[i], o, where));
    }
    return OK;
}

static int read_root(struct counters_list *l, const json_t *root, const char *path)
{
    static const char *const keys[] = {"about",  "source",  "note", "match",
                                       "events", "metrics", NULL};
    const json_t *events, *source;
    const char *key, *note;
    json_t *value;

    if (!json_is_object(root))
        return err_set(ERR_FORMAT, "%s: expected an object", path);
    TRY(json_check_keys(root, keys, path));
    TRY(get_text(root, "about", l->about, sizeof(l->about), path));
    TRY(json_get_arr(root, "source", &source, path));
    if (json_array_size(source) < 1)
        return err_set(ERR_FORMAT, "%s: source: expected a manual or list of events",
                       path);
    TRY(json_get_str(root, "note", &note, path)); /* for readers of the file */
    TRY(read_match(l, root, path));
    TRY(json_get_obj(root, "events", &events, path));
    json_object_foreach((json_t *)events, key, value)
    {
        if (l->n_events == COUNTERS_EVENTS_MAX)
            return err_set(ERR_LIMIT, "%s: events: more than %d", path,
                           COUNTERS_EVENTS_MAX);
        TRY(read_event(&l->events[l->n_events++], key, value, path));
    }
    return read_metrics(l, root, path);
}

int counters_list_read(struct counters_list *out, const char *path)
{
    json_t *root;
    int rc = json_read_file(&root, path, LIST_BYTES_MAX);

    memset(out, 0, sizeof(*out));
    if (rc == OK)
        rc = read_root(out, root, path);
    json_decref(root);
    return rc;
}

/* ---- whose list ---- */

static bool matches(const struct counters_list *l, const struct counters_cpu *cpu)
{
    if (strcmp(l->vendor, cpu->vendor) != 0 || l->family != cpu->family)
        return false;
    for (int i = 0; i < l->n_models; i++)
        if (l->models[i] == cpu->model)
            return true;
    return false;
}

int counters_list_find(struct counters_list *out, const char *dir,
                       const struct counters_cpu *cpu)
{
    char path[PATH_MAX + 256], where[PATH_MAX];
    struct dirent **files = NULL;
    int n = scandir(home_find(where, sizeof(where), dir), &files, NULL, alphasort),
        rc = OK;
    bool found = false;

    if (n < 0)
        return err_set(ERR_IO, "%s: cannot list: %m", where);
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(files[i]->d_name, '.');

        if (rc == OK && !found && dot && strcmp(dot, ".json") == 0) {
            snprintf(path, sizeof(path), "%s/%s", where, files[i]->d_name);
            rc = counters_list_read(out, path);
            found = rc == OK && matches(out, cpu);
        }
        free(files[i]);
    }
    free(files);
    if (rc != OK || found)
        return rc;
    snprintf(path, sizeof(path), "%s/generic.json", dir);
    return counters_list_read(out, path);
}

/* ---- which processor ---- */

/* The value after "key<blanks>: " in /proc/cpuinfo; NULL: none. */
static const char *field(const char *text, const char *key)
{
    for (const char *p = text; p; p = strchr(p, '\n')) {
        const char *colon;

        p += *p == '\n';
        if (strncmp(p, key, strlen(key)) != 0)
            continue;
        colon = p + strlen(key) + strspn(p + strlen(key), " \t");
        if (*colon == ':')
            return colon + 1 + strspn(colon + 1, " \t");
    }
    return NULL;
}

int counters_cpu_parse(const char *text, struct counters_cpu *out)
{
    const char *vendor = field(text, "vendor_id"), *family = field(text, "cpu family"),
               *model = field(text, "model");

    *out = (struct counters_cpu){.family = -1, .model = -1};
    if (!vendor) { /* Arm */
        vendor = field(text, "CPU implementer");
        family = field(text, "CPU architecture");
        model = field(text, "CPU part");
    }
    if (!vendor || !family || !model)
        return err_set(ERR_FORMAT, "/proc/cpuinfo: neither vendor_id, cpu family and "
                                   "model nor CPU implementer, architecture and part");
    snprintf(out->vendor, sizeof(out->vendor), "%.*s", (int)strcspn(vendor, " \t\n"),
             vendor);
    out->family = (int)strtol(family, NULL, 0);
    out->model = (int)strtol(model, NULL, 0);
    return OK;
}

int counters_cpu_get(struct counters_cpu *out)
{
    char text[8192];
    FILE *f = fopen("/proc/cpuinfo", "re");
    size_t n;

    if (!f)
        return err_set(ERR_IO, "/proc/cpuinfo: cannot open: %m");
    n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = 0;
    return counters_cpu_parse(text, out);
}
