#include "experiments/report/artifact.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/job/job.h"

#define STATE_BYTES   ((size_t)1 << 20)
#define SET_BYTES     ((size_t)1 << 20)
#define LEAST_MINUTES 0.1 /* building up and tearing down take that long at least */

static double per_minute(int n, const struct artifact_item *i)
{
    return n / (i->minutes > LEAST_MINUTES ? i->minutes : LEAST_MINUTES);
}

static int compare(double first, double second)
{
    return first > second ? -1 : first < second;
}

static int by_value(const void *a, const void *b)
{
    const struct artifact_item *x = a, *y = b;
    int c = compare(per_minute(x->n_should, x), per_minute(y->n_should, y));

    if (c == 0)
        c = compare(per_minute(x->n_claims, x), per_minute(y->n_claims, y));
    if (c == 0)
        c = compare(y->minutes, x->minutes);
    return c ? c : strcmp(x->name, y->name);
}

void artifact_sort(struct artifact_item *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
}

/* With the name and the words of *i. */
static int read_item(struct artifact_item *i, const struct claims *claims, bool smoke)
{
    const size_t n = json_array_size(i->words);
    char **sets = mem_new(MEM_HARNESS, n + 1, sizeof(*sets));
    const struct job_read_opts o = {smoke, sets, (int)n};
    struct job *j = NULL;
    int rc;

    for (size_t k = 0; k < n; k++)
        sets[k] = (char *)json_string_value(json_array_get(i->words, k));
    rc = job_read(&j, i->name, &o);
    mem_free(sets);
    if (rc != OK)
        return rc;
    i->minutes = j->cost.minutes;
    job_free(&j);
    for (size_t k = 0; k < claims->n; k++) {
        const struct claim *c = &claims->v[k];

        if (c->why || !c->experiment || strcmp(c->experiment, i->name) != 0)
            continue;
        i->n_claims++;
        i->n_should += c->should != CLAIM_NO_RECORD;
    }
    return OK;
}

int artifact_read(struct artifact_list *out, const struct claims *claims, bool smoke)
{
    const json_t *name;
    size_t i;

    *out = (struct artifact_list){0};
    TRY(job_names(&out->names));
    out->v = mem_new(MEM_HARNESS, json_array_size(out->names) + 1, sizeof(*out->v));
    json_array_foreach(out->names, i, name)
    {
        out->v[out->n++].name = json_string_value(name);
        TRY(read_item(&out->v[i], claims, smoke));
    }
    artifact_sort(out->v, out->n);
    return OK;
}

/* {"load.rate_rps": [1, 2]} as ["load.rate_rps=[1,2]"]; NULL: there is none. A new reference. */
static json_t *words_new(const json_t *set)
{
    json_t *words = set ? json_array() : NULL;
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)set, key, value)
    {
        char *text = json_text(value, JSON_COMPACT | JSON_ENCODE_ANY);

        json_array_append_new(words, json_sprintf("%s=%s", key, text));
        mem_free(text);
    }
    return words;
}

static int read_set_item(struct artifact_item *out, json_t *item,
                         const struct claims *claims, bool smoke, const char *path)
{
    static const char *const known[] = {"name",    "why",   "tag", "set",
                                        "minutes", "smoke", NULL};
    const char *key = smoke ? "smoke" : "set";
    const json_t *set = NULL;
    json_t *words;
    int rc;

    TRY(json_check_keys(item, known, path));
    TRY(json_get_str(item, "name", &out->name, path));
    TRY(json_get_str(item, "why", &out->why, path));
    TRY(json_opt_str(item, "tag", &out->tag, path));
    if (json_object_get(item, key))
        TRY(json_get_obj(item, key, &set, path));
    if (set && !out->tag)
        return err_set(ERR_FORMAT, "%s: %s: a \"%s\" needs a \"tag\"", path, out->name,
                       key);
    out->words = words = words_new(set);
    if (words)
        json_object_set_new(item, "words", words); /* the list's now */
    rc = read_item(out, claims, smoke);
    if (rc != OK)
        return err_prefix(rc, "%s", path);
    return smoke ? OK : json_opt_f64(item, "minutes", &out->minutes, path);
}

int artifact_read_set(struct artifact_list *out, const char *set,
                      const struct claims *claims, bool smoke)
{
    static const char *const known[] = {"about", "experiments", NULL};
    const bool is_path = strpbrk(set, "/.") != NULL;
    char name[256], path[PATH_MAX];
    const json_t *items;
    json_t *item;
    size_t i;

    *out = (struct artifact_list){0};
    snprintf(name, sizeof(name), "experiments/sets/%.200s.json", set);
    if (is_path)
        snprintf(path, sizeof(path), "%s", set);
    else
        home_find(path, sizeof(path), name);
    TRY(json_read_file(&out->names, path, SET_BYTES));
    TRY(json_check_keys(out->names, known, path));
    TRY(json_get_arr(out->names, "experiments", &items, path));
    out->v = mem_new(MEM_HARNESS, json_array_size(items) + 1, sizeof(*out->v));
    json_array_foreach(items, i, item)
        TRY(read_set_item(&out->v[out->n++], item, claims, smoke, path));
    return OK;
}

void artifact_fini(struct artifact_list *l)
{
    mem_free(l->v);
    json_decref(l->names);
    *l = (struct artifact_list){0};
}

int artifact_state_read(json_t **out, const char *path)
{
    const char *name;
    json_t *run;
    int rc = path ? json_read_file(out, path, STATE_BYTES) : ERR_NOTFOUND;

    if (rc == ERR_NOTFOUND) {
        *out = json_object();
        return OK;
    }
    if (rc == OK && !json_is_object(*out))
        rc = err_set(ERR_FORMAT, "%s: expected an object", path);
    if (rc == OK)
        json_object_foreach(*out, name, run)
        {
            double minutes = 0;

            rc = json_get_f64(run, "minutes", &minutes, path);
            if (rc == OK && !(minutes >= 0))
                rc = err_set(ERR_FORMAT, "%s: %s: expected minutes from 0", path, name);
            if (rc != OK)
                break;
        }
    if (rc != OK) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}
