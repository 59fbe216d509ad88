#include "experiments/job/impl.h"

#include <string.h>

#include "base/mem.h"
#include "experiments/metrics/metrics.h"
#include "experiments/load/study.h"

/* A headline that matches more settings than this summarises nothing: it asks which is
 * meant, in its own line of the result. */
#define SETTINGS_MAX 64

static bool name_in_cell(const struct job *j, const struct job_cell *c, const char *name,
                         char *out, size_t n)
{
    for (const struct job_section *s = j->sections; s->name; s++) {
        const json_t *section = json_object_get(c->settings, s->name);
        size_t len = strlen(s->name);

        if (strncmp(name, s->name, len) == 0 && name[len] == '.' &&
            json_object_get(section, name + len + 1)) {
            snprintf(out, n, "%s", name);
            return true;
        }
        if (json_object_get(section, name)) {
            snprintf(out, n, "%s.%s", s->name, name);
            return true;
        }
    }
    return false;
}

int job_full_name(const struct job *j, const char *name, char *out, size_t n,
                  const char *where)
{
    for (int a = 0; a < j->n_axes; a++)
        if (strcmp(j->axes[a].name, name) == 0 || strcmp(j->axes[a].key, name) == 0) {
            snprintf(out, n, "%s", j->axes[a].name);
            return OK;
        }
    /* Variants may have options of their own. */
    for (int i = 0; i < j->n_cells; i++)
        if (name_in_cell(j, &j->cells[i], name, out, n))
            return OK;
    if (strcmp(name, "repeat") == 0)
        return err_set(ERR_ARG, "%s: a headline is the median over the repeats", where);
    return err_set(ERR_ARG, "%s: \"%s\" is neither an axis nor an option of this job",
                   where, name);
}

/* {"rate_rps": 2} -> {"load.rate_rps": 2}, a new reference in *out also on error. */
static int read_where(const struct job *j, json_t **out, const json_t *given,
                      const char *where)
{
    const char *name;
    json_t *v;

    *out = json_object();
    if (!*out)
        return err_set(ERR_NOMEM, "%s: out of memory", where);
    if (given && !json_is_object(given))
        return err_set(ERR_ARG, "%s: expected an object", where);
    json_object_foreach((json_t *)given, name, v)
    {
        char full[160];

        TRY(job_full_name(j, name, full, sizeof(full), where));
        if (json_object_set(*out, full, v) != 0)
            return err_set(ERR_NOMEM, "%s: out of memory", where);
    }
    return OK;
}

static int check_interval(const struct job *j, const struct job_headline *h,
                          const char *where)
{
    char line[360], full[160];

    if (!h->interval)
        return OK;
    if ((h->over != JOB_MEAN && h->over != JOB_GEOMEAN) || h->relative_to)
        return err_set(ERR_ARG, "%s: interval: only of a mean or geomean, not of a ratio",
                       where);
    snprintf(line, sizeof(line), "%s.interval", where);
    return job_full_name(j, h->interval, full, sizeof(full), line);
}

static int read_relative(const struct job *j, struct job_headline *h, const json_t *given,
                         const char *where)
{
    const char *name;
    json_t *v;

    if (!given)
        return OK;
    TRY(read_where(j, &h->relative_to, given, where));
    if (json_object_size(h->relative_to) == 0)
        return err_set(ERR_ARG, "%s: expected at least one setting", where);
    json_object_foreach(h->relative_to, name, v)
    {
        if (json_is_array(v))
            return err_set(ERR_ARG, "%s: %s: expected a single value", where, name);
    }
    return OK;
}

/* Is `a` what is wanted, or one of those that are? */
static bool same(const json_t *a, const json_t *wanted)
{
    if (json_is_array(wanted)) {
        for (size_t i = 0; i < json_array_size(wanted); i++)
            if (same(a, json_array_get(wanted, i)))
                return true;
        return false;
    }
    if (json_is_number(a) && json_is_number(wanted))
        return json_number_value(a) == json_number_value(wanted);
    return json_equal(a, wanted);
}

/* By its full name. A case or a variant is no setting but the name of some. */
static const json_t *value_of(const struct job_cell *c, const char *name)
{
    const json_t *v = json_object_get(c->axes, name);
    size_t section = strcspn(name, ".");

    return v || !name[section]
               ? v
               : json_object_get(json_object_getn(c->settings, name, section),
                                 name + section + 1);
}

json_t *job_values_in_cells(const struct job *j, const char *name)
{
    json_t *values = json_array();

    for (int i = 0; i < j->n_cells; i++) {
        json_t *v = (json_t *)value_of(&j->cells[i], name);

        if (v && !same(v, values) && !job_is_again(j, &j->cells[i]) &&
            json_array_append(values, v) != 0) {
            json_decref(values);
            return NULL;
        }
    }
    return values;
}

static bool matches(const struct job_cell *c, const json_t *where)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)where, name, v)
    {
        if (!same(value_of(c, name), v))
            return false;
    }
    return true;
}

int job_headline_reference(const struct job *j, const struct job_headline *h, int cell)
{
    const struct job_cell *c = &j->cells[cell];
    int n = j->n_cells / (int)j->head.repeats;

    /* Cells of a repeat are neighbours. */
    for (int i = cell - cell % n; i < cell - cell % n + n; i++) {
        bool equal = matches(&j->cells[i], h->relative_to);

        for (int a = 0; a < j->n_axes && equal; a++)
            equal = json_object_get(h->relative_to, j->axes[a].name) ||
                    json_equal(json_object_get(c->axes, j->axes[a].name),
                               json_object_get(j->cells[i].axes, j->axes[a].name));
        if (equal)
            return i;
    }
    return -1;
}

bool job_is_again(const struct job *j, const struct job_cell *c)
{
    const char *variant = json_string_value(json_object_get(c->axes, job_variants.axis));

    return j->again && variant && strcmp(variant, j->again) == 0;
}

int job_headline_cells(const struct job *j, const struct job_headline *h, bool *chosen)
{
    const bool named = json_object_get(h->where, job_variants.axis) != NULL;
    int n = 0;

    for (int i = 0; i < j->n_cells; i++) {
        chosen[i] =
            matches(&j->cells[i], h->where) && (named || !job_is_again(j, &j->cells[i]));
        n += chosen[i];
    }
    return n;
}

bool job_is_swept_goodput(const struct job *j, const char *metric)
{
    const json_t *search = json_object_get(j->cells[0].settings, "search");

    return !j->study && strcmp(metric, "goodput_rps") == 0 &&
           !json_is_true(json_object_get(search, "goodput"));
}

const struct job_axis *job_headline_open_axis(const struct job *j,
                                              const struct job_headline *h,
                                              const bool *chosen)
{
    for (int a = 0; a < j->n_axes; a++) {
        const char *name = j->axes[a].name;
        const json_t *first = NULL;

        if (job_is_swept_goodput(j, h->metric) && strcmp(name, "load.rate_rps") == 0)
            continue;
        for (int i = 0; i < j->n_cells; i++) {
            const json_t *v = json_object_get(j->cells[i].axes, name);

            if (chosen[i] && first && !json_equal(first, v))
                return &j->axes[a];
            first = chosen[i] && !first ? v : first;
        }
    }
    return NULL;
}

const char *job_metric_unit(const struct job *j, const char *metric)
{
    const struct study_metric *m;

    if (!j->study)
        return metrics_unit(metric);
    m = study_metric_find(j->study, metric);
    return m ? m->unit : "";
}

static int check_metric(const struct job *j, const struct job_headline *h,
                        const char *where)
{
    int rc = OK;

    if (job_is_swept_goodput(j, h->metric))
        return h->over == JOB_MEDIAN
                   ? OK
                   : err_set(ERR_ARG, "%s: goodput_rps is over the rates of one setting",
                             where);
    if (!j->study)
        rc = metrics_known(h->metric);
    else if (!study_metric_find(j->study, h->metric))
        rc = ERR_NOTFOUND;
    return rc == OK ? OK : err_prefix(rc, "%s", where);
}

static int read_one(struct job *j, struct job_headline *h, const json_t *given,
                    const char *where)
{
    char line[360];
    json_t *rest = json_copy((json_t *)given);
    int rc = opt_init(job_headline_opt_table, h);

    if (rc == OK && (!rest || !json_is_object(given)))
        rc = err_set(ERR_ARG, "%s: expected an object", where);
    if (rc != OK)
        goto out;
    json_object_del(rest, "where");
    json_object_del(rest, "relative_to");
    rc = opt_from_json(job_headline_opt_table, h, rest, where);
    if (rc == OK && (!h->name || !h->metric))
        rc = err_set(ERR_ARG, "%s: needs \"name\" and \"metric\"", where);
    if (rc == OK)
        rc = check_metric(j, h, where);
    snprintf(line, sizeof(line), "%s.where", where);
    if (rc == OK)
        rc = read_where(j, &h->where, json_object_get(given, "where"), line);
    snprintf(line, sizeof(line), "%s.relative_to", where);
    if (rc == OK)
        rc = read_relative(j, h, json_object_get(given, "relative_to"), line);
    if (rc == OK)
        rc = check_interval(j, h, where);
out:
    json_decref(rest);
    return rc;
}

static bool is_taken(const struct job *j, const char *name)
{
    for (int i = 0; i < j->n_headlines; i++)
        if (strcmp(j->headlines[i].name, name) == 0)
            return true;
    return false;
}

/* Headlines are objects of an HDF5 group and keys of latest.json. */
static int check_name(const struct job *j, const char *name, const char *where)
{
    if (!*name || strchr(name, '/'))
        return err_set(ERR_ARG, "%s: expected a name without '/', found \"%s\"", where,
                       name);
    if (is_taken(j, name))
        return err_set(ERR_ARG, "%s: a second headline has the name \"%s\"", where, name);
    return OK;
}

char *job_value_text(const json_t *v, bool brief)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    if (!f)
        return NULL;
    job_put_value(v, brief, f);
    return fclose(f) == 0 ? text : NULL;
}

/* Does the last part of a path name one value of the axis only? */
static bool is_distinct(const struct job_axis *a, const json_t *value, const char *text)
{
    size_t i;
    json_t *v;

    json_array_foreach(a->values, i, v)
    {
        char *other = job_value_text(v, true);
        bool equal = other && strcmp(other, text) == 0;

        free(other);
        if (equal && v != value)
            return false;
    }
    return true;
}

/* "ttft_p50 rate_rps=5": new text, NULL on ERR_NOMEM. */
static json_t *name_at(const char *name, const struct job_axis *a, const json_t *value)
{
    char *text = job_value_text(value, true);
    json_t *full;

    if (text && !is_distinct(a, value, text)) {
        free(text);
        text = job_value_text(value, false);
    }
    for (char *p = text; p && *p; p++)
        *p = *p == '/' ? '_' : *p;
    full = text ? json_sprintf("%s %s=%s", name, a->key, text) : NULL;
    free(text);
    return full;
}

static int add(struct job *j, const json_t *given, const char *where);

static bool is_again(const struct job *j, const json_t *variant)
{
    return j->again && strcmp(json_string_value(variant), j->again) == 0;
}

/* A headline for each value of an axis that `h`, made from `given`, leaves open. */
static int add_along(struct job *j, const struct job_headline *h, const json_t *given,
                     const struct job_axis *a, const char *where)
{
    const json_t *wanted = json_object_get(h->where, a->name);
    int rc = OK;

    for (size_t i = 0; i < json_array_size(a->values) && rc == OK; i++) {
        json_t *v = json_array_get(a->values, i), *one, *cells;

        if (wanted ? !same(v, wanted) : a->kind == &job_variants && is_again(j, v))
            continue;
        one = json_copy((json_t *)given);
        cells = json_copy(h->where);
        if (json_object_set(cells, a->name, v) != 0 ||
            json_object_set(one, "where", cells) != 0 ||
            json_object_set_new(one, "name", name_at(h->name, a, v)) != 0)
            rc = err_set(ERR_NOMEM, "%s: out of memory", where);
        else
            rc = add(j, one, where);
        json_decref(one);
        json_decref(cells);
    }
    return rc;
}

static int keep(struct job *j, struct job_headline *h, const char *where)
{
    struct job_headline *all;

    TRY(check_name(j, h->name, where));
    all = mem_resize(MEM_HARNESS, j->headlines, (size_t)j->n_headlines + 1, sizeof(*h));
    if (!all)
        return ERR_NOMEM;
    j->headlines = all;
    all[j->n_headlines++] = *h;
    *h = (struct job_headline){0};
    return OK;
}

static int add(struct job *j, const json_t *given, const char *where)
{
    struct job_headline h = {0};
    const struct job_axis *a = NULL;
    bool *chosen = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*chosen));
    int rc = chosen ? read_one(j, &h, given, where) : ERR_NOMEM, n;

    if (rc == OK && h.over == JOB_MEDIAN) {
        n = job_headline_cells(j, &h, chosen) / (int)j->head.repeats;
        a = n <= SETTINGS_MAX ? job_headline_open_axis(j, &h, chosen) : NULL;
    }
    if (rc == OK)
        rc = a ? add_along(j, &h, given, a, where) : keep(j, &h, where);
    opt_free(job_headline_opt_table, &h);
    json_decref(h.where);
    json_decref(h.relative_to);
    mem_free(chosen);
    return rc;
}

int job_read_headlines(struct job *j, json_t *root, const char *where)
{
    const json_t *list = json_object_get(root, "headline");
    const size_t n = json_array_size(list);
    char line[320];
    int rc = OK;

    for (size_t i = 0; i < n && rc == OK; i++) {
        snprintf(line, sizeof(line), "%s: headline %zu", where, i);
        rc = add(j, json_array_get(list, i), line);
    }
    return rc;
}
