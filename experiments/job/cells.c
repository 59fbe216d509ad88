/* Axes and cells: the product of every option that is given as a list. */
#include "experiments/job/impl.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "base/name.h"
#include "datasets/dataset.h"
#include "experiments/load/load.h"
#include "experiments/load/search.h"

#define MAX_CELLS 100000

/* Cells are told apart by their values. */
static int check_values(const json_t *values, const char *name, const char *where)
{
    size_t n = json_array_size(values);

    if (n == 0)
        return err_set(ERR_ARG, "%s: %s: the list is empty", where, name);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (json_equal(json_array_get(values, i), json_array_get(values, k)))
                return err_set(ERR_ARG,
                               "%s: %s: values %zu and %zu of the list are equal", where,
                               name, k + 1, i + 1);
    return OK;
}

/* Append `given`, whose values and overlays get references of their own. */
static int add_axis(struct job *j, const struct job_axis *given, const char *name,
                    const char *where)
{
    struct job_axis *a;
    int rc = check_values(given->values, name, where);

    if (rc != OK)
        return rc;
    a = mem_resize(MEM_HARNESS, j->axes, (size_t)j->n_axes + 1, sizeof(*a));
    if (!a)
        return ERR_NOMEM;
    j->axes = a;
    a += j->n_axes++;
    *a = *given;
    a->name = mem_strdup(MEM_HARNESS, name);
    json_incref(a->values);
    json_incref(a->overlays);
    if (!a->name)
        return ERR_NOMEM;
    a->key = a->name + (a->section ? strlen(a->section) + 1 : 0);
    return OK;
}

static int add_option_axis(struct job *j, const char *section, const char *key,
                           json_t *values, const char *where)
{
    char name[160];

    snprintf(name, sizeof(name), "%s.%s", section, key);
    return add_axis(j, &(struct job_axis){.section = section, .values = values}, name,
                    where);
}

/* In the file's order: the outermost axis is the one written first. */
static int find_option_axes(struct job *j, const json_t *root, const char *where)
{
    const char *section, *key;
    json_t *object, *value;
    int rc = OK;

    json_object_foreach((json_t *)root, section, object)
    {
        const struct job_section *s = job_section_find(section);

        if (!s)
            continue;
        json_object_foreach(object, key, value)
        {
            if (json_is_array(value) && rc == OK)
                rc = add_option_axis(j, s->name, key, value, where);
        }
    }
    return rc;
}

static int add_overlay_axis(struct job *j, const json_t *root,
                            const struct job_overlay_kind *k, const char *where)
{
    struct job_axis a;
    int rc = job_read_overlays(&a, j, root, k, where);

    if (rc == OK && a.kind)
        rc = add_axis(j, &a, k->axis, where);
    json_decref(a.values);
    json_decref(a.overlays);
    return rc;
}

static int find_axes(struct job *j, const json_t *root, const char *where)
{
    TRY(add_overlay_axis(j, root, &job_cases, where));
    TRY(find_option_axes(j, root, where));
    TRY(add_overlay_axis(j, root, &job_variants, where));
    return job_check_overlays(j, where);
}

/* Element `at[a]` of every axis: an option's set in place of its list, then cases and
 * variants laid over. *where gets their names. */
static int place(json_t *sections, const struct job *j, const size_t *at, json_t *axes,
                 char where[320])
{
    for (int a = 0; a < j->n_axes; a++) {
        const struct job_axis *x = &j->axes[a];
        json_t *v = json_array_get(x->values, at[a]);

        if ((x->section &&
             json_object_set(json_object_get(sections, x->section), x->key, v) != 0) ||
            json_object_set(axes, x->name, v) != 0)
            return err_set(ERR_NOMEM, "job: out of memory");
    }
    for (int a = 0; a < j->n_axes; a++) {
        const struct job_axis *x = &j->axes[a];
        size_t n = strlen(where);

        if (!x->kind)
            continue;
        snprintf(where + n, 320 - n, ": %s %s", x->name,
                 json_string_value(json_array_get(x->values, at[a])));
        TRY(job_lay_overlay(j, sections, json_array_get(x->overlays, at[a]), where));
    }
    return OK;
}

/* Each item's own dataset seed, unless the job fixes one. */
static int default_dataset_seed(json_t *sections)
{
    json_t *dataset = json_object_get(sections, "dataset");
    json_t *sample = json_object_get(json_object_get(sections, "seeds"), "sample");

    if (json_object_get(dataset, "seed") || !sample)
        return OK;
    return json_object_set(dataset, "seed", sample) == 0
               ? OK
               : err_set(ERR_NOMEM, "job: out of memory");
}

static int check_load(const json_t *load, const char *where)
{
    struct load_opts o;
    int rc = opt_init(load_opt_table, &o);

    if (rc != OK)
        return rc;
    rc = opt_from_json(load_opt_table, &o, load, where);
    if (rc == OK)
        rc = load_check(&o, where);
    opt_free(load_opt_table, &o);
    return rc;
}

/* A search needs a rate to begin with and objectives to search for. */
static int check_search(const json_t *sections, const char *where)
{
    const json_t *slo = json_object_get(sections, "slo");
    struct load_opts load;
    struct load_search_opts o;
    int rc = opt_init(load_search_opt_table, &o);

    if (rc == OK)
        rc = opt_from_json(load_search_opt_table, &o, json_object_get(sections, "search"),
                           where);
    if (rc != OK || !o.goodput)
        return rc;
    rc = opt_init(load_opt_table, &load);
    if (rc == OK)
        rc = opt_from_json(load_opt_table, &load, json_object_get(sections, "load"),
                           where);
    if (rc == OK)
        rc = load_search_check(&o, &load, where);
    opt_free(load_opt_table, &load);
    if (rc == OK && !(json_number_value(json_object_get(slo, "ttft_ms")) > 0) &&
        !(json_number_value(json_object_get(slo, "tpot_ms")) > 0))
        rc = err_set(ERR_ARG,
                     "%s.goodput: needs an objective, slo.ttft_ms or slo.tpot_ms", where);
    return rc;
}

/* Before a model is made for it. */
static int check_reader(const json_t *dataset, const char *where)
{
    const char *name = json_string_value(json_object_get(dataset, "reader"));

    return !name || strcmp(name, "auto") == 0 ||
                   name_find(dataset_readers, name, "reader")
               ? OK
               : err_prefix(ERR_NOTFOUND, "%s.reader", where);
}

static int resolve(const struct job *j, json_t *sections, const char *where)
{
    char line[400];
    int rc = default_dataset_seed(sections);

    for (const struct job_section *s = j->sections; s->name && rc == OK; s++) {
        json_t *all;

        snprintf(line, sizeof(line), "%s: %s", where, s->name);
        rc = job_section_resolve(s, json_object_get(sections, s->name), &all, line);
        if (rc == OK && json_object_set_new(sections, s->name, all) != 0)
            rc = err_set(ERR_NOMEM, "%s: out of memory", line);
        if (rc == OK && strcmp(s->name, "load") == 0)
            rc = check_load(json_object_get(sections, "load"), line);
        if (rc == OK && strcmp(s->name, "dataset") == 0)
            rc = check_reader(json_object_get(sections, "dataset"), line);
    }
    if (rc == OK && !j->study) {
        snprintf(line, sizeof(line), "%s: search", where);
        rc = check_search(sections, line);
    }
    return rc;
}

void job_put_value(const json_t *v, bool brief, FILE *f)
{
    const char *text = json_string_value(v);
    char *s = text ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

    if (text && brief && strrchr(text, '/') && !strchr(text, ' '))
        text = strrchr(text, '/') + 1;
    utf8_print(f, text ? text : s ? s : "?");
    free(s);
}

static char *cell_text(const struct job *j, const struct job_cell *c, bool brief)
{
    char *out = NULL, *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    if (!f)
        return NULL;
    for (int a = 0; a < j->n_axes; a++) {
        fprintf(f, "%s%s=", a ? " " : "", brief ? j->axes[a].key : j->axes[a].name);
        job_put_value(json_object_get(c->axes, j->axes[a].name), brief, f);
    }
    if (!brief || j->head.repeats > 1)
        fprintf(f, "%srepeat=%lld", j->n_axes ? " " : "", (long long)c->repeat);
    else if (j->n_axes == 0)
        fputs(j->stem, f);
    if (fclose(f) == 0)
        out = mem_strdup(MEM_HARNESS, text);
    free(text);
    return out;
}

/* Do the variants change the system, or by what it is judged, and nothing else? */
static bool variants_serve_alike(const struct job *j)
{
    const json_t *variants = job_variant_axis(j) ? job_variant_axis(j)->overlays : NULL;
    bool alike = variants;

    for (size_t i = 0; i < json_array_size(variants); i++)
        for (const struct job_section *s = j->sections; s->name; s++)
            if (strcmp(s->name, "system") != 0 && strcmp(s->name, "slo") != 0)
                alike &= !json_object_get(json_array_get(variants, i), s->name);
    return alike;
}

/* Only the same requests, which wait for each other, can be sent to every variant in turn; and only
 * searches share rates. */
static int check_pairing(const struct job *j, const struct job_cell *c, const char *where)
{
    const json_t *load = json_object_get(c->settings, "load");
    const json_t *dataset = json_object_get(c->settings, "dataset");

    if (j->head.pairing == JOB_PAIRED_REQUESTS &&
        (!variants_serve_alike(j) || c->is_search ||
         json_int_at(load, "concurrency") != 1 ||
         strcmp(json_str_at(load, "process", ""), "closed") != 0 ||
         strcmp(json_str_at(dataset, "turns", ""), "conversation") == 0))
        return err_set(ERR_ARG,
                       "%s: pairing: \"request\" needs variants, which change system or "
                       "slo only, load.process \"closed\" with concurrency 1, no search "
                       "and no conversations: the same request goes to each in turn",
                       where);
    if (j->head.pairing == JOB_PAIRED_RATES &&
        (!variants_serve_alike(j) || !c->is_search || j->head.repeats != 1))
        return err_set(
            ERR_ARG,
            "%s: pairing: \"rate\" needs variants, which change system or slo "
            "only, search.goodput and repeats 1: each rate is tried until it is "
            "decided",
            where);
    return OK;
}

static int make_cell(struct job *j, const json_t *base, const size_t *at, int64_t repeat,
                     const char *where)
{
    struct job_cell *c = &j->cells[j->n_cells++];
    char line[320];
    int rc;

    snprintf(line, sizeof(line), "%s", where);
    *c = (struct job_cell){
        .repeat = repeat, .settings = json_deep_copy(base), .axes = json_object()};
    if (!c->settings || !c->axes)
        return err_set(ERR_NOMEM, "%s: out of memory", where);
    rc = place(c->settings, j, at, c->axes, line);
    if (rc == OK)
        rc = resolve(j, c->settings, line);
    c->is_search =
        json_is_true(json_object_get(json_object_get(c->settings, "search"), "goodput"));
    if (rc == OK)
        rc = check_pairing(j, c, line);
    if (rc == OK && j->n_slo_scale) {
        json_t *scale = json_array();

        for (int i = 0; i < j->n_slo_scale; i++)
            json_array_append_new(scale, json_real(j->slo_scale[i]));
        json_object_set_new(json_object_get(c->settings, "slo"), "scale", scale);
    }
    if (rc == OK &&
        (!(c->key = cell_text(j, c, false)) || !(c->label = cell_text(j, c, true))))
        rc = err_set(ERR_NOMEM, "%s: out of memory", where);
    return rc;
}

/* The next combination, last axis fastest; false after the last. */
static bool advance(const struct job *j, size_t *at)
{
    for (int a = j->n_axes - 1; a >= 0; a--) {
        if (++at[a] < json_array_size(j->axes[a].values))
            return true;
        at[a] = 0;
    }
    return false;
}

static int base_sections(const struct job *j, const json_t *root, json_t **out)
{
    json_t *base = json_object();
    int rc = base ? OK : err_set(ERR_NOMEM, "job: out of memory");

    for (const struct job_section *s = j->sections; s->name && rc == OK; s++) {
        json_t *given = json_object_get(root, s->name);

        given = given ? json_deep_copy(given) : json_object();
        if (json_object_set_new(base, s->name, given) != 0)
            rc = err_set(ERR_NOMEM, "job: out of memory");
    }
    *out = base;
    return rc;
}

int job_expand(struct job *j, const json_t *root, const char *where)
{
    json_t *base = NULL;
    size_t *at = NULL;
    double n = (double)j->head.repeats;
    int rc = base_sections(j, root, &base);

    if (rc == OK)
        rc = find_axes(j, root, where);
    if (rc != OK)
        goto out;
    for (int a = 0; a < j->n_axes; a++)
        n *= (double)json_array_size(j->axes[a].values);
    if (n > MAX_CELLS) {
        rc = err_set(ERR_LIMIT, "%s: %.0f cells; the limit is %d", where, n, MAX_CELLS);
        goto out;
    }
    at = mem_new(MEM_HARNESS, (size_t)j->n_axes, sizeof(*at));
    j->cells = mem_new(MEM_HARNESS, (size_t)n, sizeof(*j->cells));
    rc = at && j->cells ? OK : ERR_NOMEM;
    for (int64_t r = 0; r < j->head.repeats && rc == OK; r++)
        do
            rc = make_cell(j, base, at, r, where);
        while (rc == OK && advance(j, at));
out:
    mem_free(at);
    json_decref(base);
    return rc;
}

double job_scheduled_s(const struct job *j)
{
    double s = 0;

    for (int i = 0; i < j->n_cells; i++) {
        const json_t *load = json_object_get(j->cells[i].settings, "load");
        const json_t *search = json_object_get(j->cells[i].settings, "search");
        double rate = json_number_value(json_object_get(load, "rate_rps"));
        double n = json_number_value(json_object_get(load, "n_requests"));
        double warm = json_number_value(json_object_get(load, "warmup_requests"));

        if (!(rate > 0) || !(n > 0) || json_is_true(json_object_get(search, "goodput")))
            return NAN;
        s += (n + warm) / rate;
    }
    return s;
}
