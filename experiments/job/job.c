#include "experiments/job/impl.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/utf8.h"
#include "experiments/metrics/metrics.h"
#include "experiments/load/study.h"

#define MAX_JOB_BYTES (1 << 20)

/* --- the parts laid over each other */

/* "load.rate_rps=2" set in `root`; the value is JSON, or else a text. */
static int set_path(json_t *root, const char *set)
{
    const char *eq = strchr(set, '='), *dot;
    json_t *v, *at = root;

    if (!eq || eq == set)
        return err_set(ERR_ARG, "--set: expected key=value, found \"%s\"", set);
    if (!utf8_valid(set, strlen(set)))
        return err_set(ERR_ARG, "--set: expected UTF-8, found \"%s\"", set);
    v = json_loads(eq + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!v)
        v = json_string(eq + 1);
    while ((dot = memchr(set, '.', (size_t)(eq - set)))) {
        char key[128];
        json_t *next;

        snprintf(key, sizeof(key), "%.*s", (int)(dot - set), set);
        next = json_object_get(at, key);
        if (!next && json_object_set_new(at, key, next = json_object()) != 0)
            break;
        if (!json_is_object(next)) {
            json_decref(v);
            return err_set(ERR_ARG, "--set %s: \"%s\" is not a section", set, key);
        }
        at = next;
        set = dot + 1;
    }
    if (json_object_setn_new(at, set, (size_t)(eq - set), v) != 0)
        return err_set(ERR_NOMEM, "--set: out of memory");
    return OK;
}

/* Does "load.rate_rps=..." name a list? */
static bool is_list(const json_t *root, const char *set)
{
    size_t section = strcspn(set, ".="), name = strcspn(set, "=");

    return set[section] == '.' &&
           json_is_array(json_object_getn(json_object_getn(root, set, section),
                                          set + section + 1, name - section - 1));
}

/* "load.rate_rps=..." holds for every case and variant. */
static void override_overlays(json_t *root, const char *set)
{
    size_t section = strcspn(set, ".="), name = strcspn(set, "=");
    char key[128];

    if (set[section] != '.')
        return;
    snprintf(key, sizeof(key), "%.*s", (int)(name - section - 1), set + section + 1);
    job_drop_from_overlays(root, set, section, key);
}

/* One --set; a list in place of a single value is a new axis. */
static int override(struct job *j, json_t *root, const char *set)
{
    bool was_list = is_list(root, set);
    int rc = set_path(root, set);

    if (rc == OK)
        override_overlays(root, set);
    if (rc == OK && !was_list && is_list(root, set) &&
        json_array_append_new(j->swept, json_stringn(set, strcspn(set, "="))) != 0)
        rc = err_set(ERR_NOMEM, "--set: out of memory");
    return rc;
}

static int lay_over(struct job *j, json_t *root, const struct job_read_opts *o,
                    const char *where)
{
    json_t *smoke = json_incref(json_object_get(root, "smoke"));
    int rc = OK;

    if (smoke && !json_is_object(smoke))
        rc = err_set(ERR_ARG, "%s: smoke: expected an object", where);
    else if (o && o->smoke && !smoke)
        rc = err_set(ERR_ARG, "%s: has no \"smoke\" section", where);
    else if (o && o->smoke)
        rc = job_merge(root, smoke);
    json_object_del(root, "smoke");
    for (int i = 0; o && i < o->n_sets && rc == OK; i++)
        rc = override(j, root, o->sets[i]);
    json_decref(smoke);
    return rc;
}

/* --- keys */

static bool is_row(const struct opt_row *t, const char *key)
{
    for (; t->name; t++)
        if (strcmp(t->name, key) == 0)
            return true;
    return false;
}

static const char *const object_keys[] = {"claim", "cost", "words", NULL};
static const char *const list_keys[] = {"needs",    "prepare", "headline",
                                        "variants", "cases",   NULL};
/* One name or a list of names, of those lists. */
static const char *const choice_keys[] = {"variant", "case", NULL};

static int unknown_key(const char *key, const char *where)
{
    const char *words[64];
    int n = 0;

    for (const struct opt_row *r = job_head_opt_table; r->name; r++)
        words[n++] = r->name;
    for (const struct job_section *s = job_serve_sections; s->name; s++)
        words[n++] = s->name;
    for (const struct job_section *s = job_study_sections; s->name; s++)
        words[n++] = s->name;
    for (int i = 0; object_keys[i]; i++)
        words[n++] = object_keys[i];
    for (int i = 0; list_keys[i]; i++)
        words[n++] = list_keys[i];
    for (int i = 0; choice_keys[i]; i++)
        words[n++] = choice_keys[i];
    words[n++] = "smoke";
    words[n] = NULL;
    return name_unknown(ERR_ARG, key, words, "%s: unknown key \"%s\"", where, key);
}

static bool is_object_key(const char *key)
{
    return name_index(object_keys, key) >= 0 || job_section_find(key) != NULL;
}

static int check_keys(const json_t *root, const char *where)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)root, key, v)
    {
        if (is_object_key(key)) {
            if (!json_is_object(v))
                return err_set(ERR_ARG, "%s: %s: expected an object", where, key);
        } else if (name_index(list_keys, key) >= 0) {
            if (!json_is_array(v))
                return err_set(ERR_ARG, "%s: %s: expected a list", where, key);
        } else if (!is_row(job_head_opt_table, key) && name_index(choice_keys, key) < 0) {
            return unknown_key(key, where);
        }
    }
    return OK;
}

/* --- the parts that are not settings */

static int read_table(const struct opt_row *table, void *s, const json_t *given,
                      const char *where, const char *name)
{
    char line[320];

    snprintf(line, sizeof(line), "%s%s%s", where, name[0] ? ": " : "", name);
    return given ? opt_from_json(table, s, given, line) : OK;
}

/* "repeats": "auto" is not a number for the table: the cells are those of the most repeats. */
static int read_auto(struct job_head *h, json_t *head, const char *where)
{
    const json_t *given = json_object_get(head, "repeats");
    const char *word = json_string_value(given);

    if (!word)
        return OK;
    if (strcmp(word, "auto") != 0)
        return err_set(ERR_ARG,
                       "%s: repeats: expected a number or \"auto\", found \"%s\"", where,
                       word);
    h->repeats_auto = true;
    json_object_del(head, "repeats");
    return OK;
}

static int check_auto(struct job_head *h, const char *where)
{
    if (!h->repeats_auto)
        return OK;
    if (h->repeats_min > h->repeats_max)
        return err_set(ERR_ARG,
                       "%s: repeats_min: expected at most repeats_max, %lld, found %lld",
                       where, (long long)h->repeats_max, (long long)h->repeats_min);
    h->repeats = h->repeats_max;
    return OK;
}

static int read_head(struct job *j, const json_t *root, const char *where)
{
    json_t *head = json_object();
    int rc = head ? OK : err_set(ERR_NOMEM, "%s: out of memory", where);

    for (const struct opt_row *r = job_head_opt_table; r->name && rc == OK; r++) {
        json_t *v = json_object_get(root, r->name);

        if (v && json_object_set(head, r->name, v) != 0)
            rc = err_set(ERR_NOMEM, "%s: out of memory", where);
    }
    if (rc == OK)
        rc = read_auto(&j->head, head, where);
    if (rc == OK)
        rc = read_table(job_head_opt_table, &j->head, head, where, "");
    if (rc == OK)
        rc = check_auto(&j->head, where);
    j->evidence = metrics_evidence[j->head.evidence];
    if (rc == OK && j->head.published &&
        (strncmp(j->head.published, "no: ", 4) != 0 || !j->head.published[4]))
        rc = err_set(ERR_ARG,
                     "%s: published: expected \"no: \" and the reason, found \"%s\"",
                     where, j->head.published);
    if (rc == OK && !j->head.about)
        rc = err_set(ERR_ARG, "%s: needs \"about\": one line on what it shows", where);
    if (rc == OK)
        rc = read_table(job_claim_opt_table, &j->claim, json_object_get(root, "claim"),
                        where, "claim");
    if (rc == OK)
        rc = read_table(job_cost_opt_table, &j->cost, json_object_get(root, "cost"),
                        where, "cost");
    json_decref(head);
    return rc;
}

static int read_scale(struct job *j, json_t *root, const char *where)
{
    json_t *slo = json_object_get(root, "slo");
    json_t *scale = json_incref(json_object_get(slo, "scale"));
    size_t n = json_array_size(scale);
    int rc = OK;

    json_object_del(slo, "scale");
    j->slo_scale = mem_new(MEM_HARNESS, n, sizeof(double));
    if (!j->slo_scale)
        rc = ERR_NOMEM;
    if (rc == OK && scale && !json_is_array(scale))
        rc = err_set(ERR_ARG, "%s: slo.scale: expected a list of numbers", where);
    for (size_t i = 0; i < n && rc == OK; i++) {
        double x = json_number_value(json_array_get(scale, i));

        if (!(x > 0))
            rc = err_set(ERR_ARG, "%s: slo.scale: element %zu: expected a number above 0",
                         where, i);
        j->slo_scale[j->n_slo_scale++] = x;
    }
    json_decref(scale);
    return rc;
}

static bool all_strings(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return false;
    return true;
}

static int check_prepare(const json_t *list, const char *where)
{
    static const char *const words[] = {"run", "creates", NULL};

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i), *run = json_object_get(p, "run");
        const char *key;
        json_t *v;

        if (!json_is_array(run) || json_array_size(run) == 0 || !all_strings(run))
            return err_set(ERR_ARG, "%s: prepare %zu: \"run\": expected a list of words",
                           where, i);
        if (json_string_length(json_object_get(p, "creates")) == 0)
            return err_set(ERR_ARG, "%s: prepare %zu: \"creates\": expected a path",
                           where, i);
        json_object_foreach((json_t *)p, key, v)
        {
            if (name_index(words, key) < 0)
                return name_unknown(ERR_ARG, key, words,
                                    "%s: prepare %zu: unknown key \"%s\"", where, i, key);
        }
    }
    return OK;
}

static int read_lists(struct job *j, const json_t *root, const char *where)
{
    j->needs = json_incref(json_object_get(root, "needs"));
    j->prepare = json_incref(json_object_get(root, "prepare"));
    if (!all_strings(j->needs))
        return err_set(ERR_ARG, "%s: needs: expected a list of texts", where);
    return check_prepare(j->prepare, where);
}

/* Does it serve or study? */
static int read_kind(struct job *j, const json_t *root, const char *where)
{
    const json_t *study = json_object_get(root, "study");
    const json_t *name = json_object_get(study, "name");
    int rc;

    j->sections = study ? job_study_sections : job_serve_sections;
    if (!study)
        return OK;
    for (const struct job_section *s = job_serve_sections; s->name; s++)
        if (json_object_get(root, s->name))
            return err_set(
                ERR_ARG,
                "%s: \"study\" and \"%s\" exclude each other: a job has one of them",
                where, s->name);
    if (!json_is_string(name))
        return err_set(ERR_ARG, "%s: study.name: expected the name of a study, found %s",
                       where, name ? "another type" : "none");
    rc = study_find(json_string_value(name), &j->study);
    return rc == OK ? OK : err_prefix(rc, "%s: study.name", where);
}

/* --- the whole */

/* The list of cases or variants, without the variant that "aa" adds. New reference. */
static json_t *overlays_of(const struct job *j, const struct job_axis *x)
{
    json_t *list = json_copy(x->overlays);

    if (j->again && x->kind == &job_variants)
        json_array_remove(list, json_array_size(list) - 1);
    return list;
}

/* The settings of the first cell with the lists of the axes put back. */
static int resolve_job(struct job *j, const json_t *root)
{
    const struct job_cell *c = &j->cells[0];
    json_t *r = json_deep_copy(c->settings),
           *headline = json_object_get(root, "headline");
    bool bad = !r;

    for (int a = 0; a < j->n_axes && !bad; a++) {
        const struct job_axis *x = &j->axes[a];

        bad = x->kind ? json_object_set_new(r, x->kind->list, overlays_of(j, x)) != 0
                      : json_object_set(json_object_get(r, x->section), x->key,
                                        x->values) != 0;
    }
    bad =
        bad || json_object_update_new(r, opt_to_json(job_head_opt_table, &j->head)) != 0;
    bad = bad || (j->head.repeats_auto &&
                  json_object_set_new(r, "repeats", json_string("auto")) != 0);
    bad = bad || json_object_set_new(r, "claim",
                                     opt_to_json(job_claim_opt_table, &j->claim)) != 0;
    bad = bad ||
          json_object_set_new(r, "cost", opt_to_json(job_cost_opt_table, &j->cost)) != 0;
    bad = bad || json_object_set_new(r, "smoke", json_boolean(j->smoke)) != 0;
    bad = bad || (j->needs && json_object_set(r, "needs", j->needs) != 0);
    bad = bad || (j->prepare && json_object_set(r, "prepare", j->prepare) != 0);
    bad = bad || (headline && json_object_set(r, "headline", headline) != 0);
    j->resolved = r;
    return bad ? err_set(ERR_NOMEM, "job: out of memory") : OK;
}

static int fill(struct job *j, json_t *root, const char *where,
                const struct job_read_opts *o)
{
    int rc = json_is_object(root) ? lay_over(j, root, o, where)
                                  : err_set(ERR_ARG, "%s: expected an object", where);

    if (rc == OK)
        rc = check_keys(root, where);
    if (rc == OK)
        rc = read_kind(j, root, where);
    if (rc == OK)
        rc = read_head(j, root, where);
    if (rc == OK)
        rc = read_lists(j, root, where);
    if (rc == OK)
        rc = read_scale(j, root, where);
    if (rc == OK)
        rc = job_expand(j, root, where);
    if (rc == OK)
        rc = job_expand_each(j, root, where);
    if (rc == OK)
        rc = job_read_headlines(j, root, where);
    if (rc == OK && j->head.repeats_auto && j->n_headlines == 0)
        rc = err_set(ERR_ARG,
                     "%s: repeats: \"auto\" needs a headline, whose interval is watched",
                     where);
    return rc == OK ? resolve_job(j, root) : rc;
}

int job_from_json(struct job **out, const json_t *root, const char *stem,
                  const char *where, const struct job_read_opts *o)
{
    struct job *j = mem_new(MEM_HARNESS, 1, sizeof(*j));
    json_t *copy = json_deep_copy(root);
    int rc = j && copy ? OK : err_set(ERR_NOMEM, "%s: out of memory", where);

    *out = NULL;
    if (rc != OK)
        goto out;
    j->smoke = o && o->smoke;
    j->stem = mem_strdup(MEM_HARNESS, stem);
    j->path = mem_strdup(MEM_HARNESS, where);
    j->swept = json_array();
    rc = j->stem && j->path && j->swept ? OK : err_set(ERR_NOMEM, "job: out of memory");
    if (rc == OK)
        rc = opt_init(job_head_opt_table, &j->head);
    if (rc == OK)
        rc = opt_init(job_claim_opt_table, &j->claim);
    if (rc == OK)
        rc = opt_init(job_cost_opt_table, &j->cost);
    if (rc == OK)
        rc = fill(j, copy, where, o);
    if (rc == OK)
        *out = j, j = NULL;
out:
    json_decref(copy);
    job_free(&j);
    return rc;
}

int job_read(struct job **out, const char *path, const struct job_read_opts *o)
{
    char file[PATH_MAX], name[512], stem[256];
    const char *base;
    json_t *root;
    int rc;

    *out = NULL;
    snprintf(name, sizeof(name), "experiments/%s.json", path);
    if (strpbrk(path, "/."))
        snprintf(file, sizeof(file), "%s", path);
    else
        home_find(file, sizeof(file), name);
    base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    snprintf(stem, sizeof(stem), "%.*s", (int)strcspn(base, "."), base);
    if (!strpbrk(path, "/.") && access(file, F_OK) != 0)
        return job_no_name(path);
    rc = json_read_file(&root, file, MAX_JOB_BYTES);
    if (rc != OK)
        return rc;
    rc = job_from_json(out, root, stem, file, o);
    json_decref(root);
    return rc;
}

void job_free(struct job **jp)
{
    struct job *j = *jp;

    if (!j)
        return;
    for (int i = 0; i < j->n_axes; i++) {
        mem_free(j->axes[i].name);
        json_decref(j->axes[i].values);
        json_decref(j->axes[i].overlays);
    }
    for (int i = 0; i < j->n_cells; i++) {
        mem_free(j->cells[i].key);
        mem_free(j->cells[i].label);
        json_decref(j->cells[i].settings);
        json_decref(j->cells[i].axes);
    }
    for (int i = 0; i < j->n_headlines; i++) {
        opt_free(job_headline_opt_table, &j->headlines[i]);
        json_decref(j->headlines[i].where);
        json_decref(j->headlines[i].relative_to);
    }
    opt_free(job_head_opt_table, &j->head);
    opt_free(job_claim_opt_table, &j->claim);
    opt_free(job_cost_opt_table, &j->cost);
    mem_free(j->again);
    json_decref(j->swept);
    json_decref(j->needs);
    json_decref(j->prepare);
    json_decref(j->resolved);
    mem_free(j->slo_scale);
    mem_free(j->axes);
    mem_free(j->cells);
    mem_free(j->headlines);
    mem_free(j->stem);
    mem_free(j->path);
    mem_free(j);
    *jp = NULL;
}
