/* Headlines over axes. {"name": "{metric}_{design}", "metric": ["rate_rps", "power"], "each":
 * ["design"]} in a job stands for one headline for each metric and value of the axis. */
#include "experiments/job/impl.h"

#include <stdlib.h>
#include <string.h>

struct each {
    const struct job *job;
    const json_t *words; /* {"Splitwise-AA": "aa"}: what a name has for a value */
    json_t *out;         /* the headlines, one by one */
    const char *where;   /* begins error lines */
};

/* `v` as it stands in a name: a new text. */
static char *word_of(const struct each *e, const json_t *v)
{
    char number[32], *text;
    const char *word;

    snprintf(number, sizeof(number), "%.9g", json_real_value(v));
    text = json_is_real(v) ? strdup(number) : job_value_text(v, true);
    word = text ? json_string_value(json_object_get(e->words, text)) : NULL;
    if (word) {
        free(text);
        text = strdup(word);
    }
    return text;
}

/* Put the word of `v` in place of "{key}" in the headline's name. */
static int put_name(const struct each *e, json_t *headline, const char *key,
                    const json_t *v)
{
    const char *name = json_string_value(json_object_get(headline, "name"));
    const size_t n = strlen(key);
    const char *slot = name;
    char *word;
    int rc;

    while ((slot = slot ? strchr(slot, '{') : NULL) &&
           (strncmp(slot + 1, key, n) != 0 || slot[n + 1] != '}'))
        slot++;
    if (!slot)
        return err_set(ERR_ARG, "%s: expected \"{%s}\" in its name, found \"%s\"",
                       e->where, key, name ? name : "");
    word = word_of(e, v);
    rc = word && json_object_set_new(headline, "name",
                                     json_sprintf("%.*s%s%s", (int)(slot - name), name,
                                                  word, slot + n + 2)) == 0
             ? OK
             : err_set(ERR_NOMEM, "%s: out of memory", e->where);
    free(word);
    return rc;
}

static int expand(const struct each *e, const json_t *given);

static int expand_metrics(const struct each *e, const json_t *given)
{
    const json_t *metrics = json_object_get(given, "metric");
    json_t *v;
    size_t i;
    int rc = OK;

    json_array_foreach(metrics, i, v)
    {
        json_t *one = json_copy((json_t *)given);

        rc = json_object_set(one, "metric", v) == 0
                 ? put_name(e, one, "metric", v)
                 : err_set(ERR_NOMEM, "%s: out of memory", e->where);
        if (rc == OK)
            rc = expand(e, one);
        json_decref(one);
        if (rc != OK)
            break;
    }
    return rc;
}

/* The values over which `given` goes along `axis`, its first: those that its "where" lists, or all
 * of the axis but the variant that runs a second time. A new reference. */
static int axis_values(const struct each *e, const json_t *given, const char *axis,
                       json_t **out)
{
    const json_t *listed = json_object_get(json_object_get(given, "where"), axis);
    char full[160];

    *out = NULL;
    if (listed && !json_is_array(listed))
        return err_set(ERR_ARG, "%s: each: \"%s\" has one value in \"where\"", e->where,
                       axis);
    if (listed) {
        *out = json_copy((json_t *)listed);
        return OK;
    }
    TRY(job_full_name(e->job, axis, full, sizeof(full), e->where));
    *out = job_values_in_cells(e->job, full);
    return *out ? OK : err_set(ERR_NOMEM, "%s: out of memory", e->where);
}

static int expand_axis(const struct each *e, const json_t *given, const char *axis)
{
    json_t *rest = json_copy(json_object_get(given, "each")), *values, *v;
    size_t i;
    int rc = axis_values(e, given, axis, &values);

    json_array_remove(rest, 0);
    json_array_foreach(values, i, v)
    {
        json_t *one = json_copy((json_t *)given);
        json_t *cells = json_copy(json_object_get(given, "where"));

        cells = cells ? cells : json_object();
        rc = json_object_set(cells, axis, v) == 0 &&
                     json_object_set(one, "where", cells) == 0 &&
                     json_object_set(one, "each", rest) == 0
                 ? put_name(e, one, axis, v)
                 : err_set(ERR_NOMEM, "%s: out of memory", e->where);
        if (rc == OK)
            rc = expand(e, one);
        json_decref(cells);
        json_decref(one);
        if (rc != OK)
            break;
    }
    json_decref(values);
    json_decref(rest);
    return rc;
}

static int expand(const struct each *e, const json_t *given)
{
    const json_t *axes = json_object_get(given, "each"), *axis = json_array_get(axes, 0);
    json_t *plain;

    if (json_is_array(json_object_get(given, "metric")))
        return expand_metrics(e, given);
    if (axis && !json_is_string(axis))
        return err_set(ERR_ARG, "%s: each: expected names of axes", e->where);
    if (axis)
        return expand_axis(e, given, json_string_value(axis));
    plain = json_copy((json_t *)given);
    json_object_del(plain, "each");
    return json_array_append_new(e->out, plain) == 0
               ? OK
               : err_set(ERR_NOMEM, "%s: out of memory", e->where);
}

static int check_words(json_t *words, const char *where)
{
    const char *value;
    json_t *word;

    json_object_foreach(words, value, word)
    {
        if (!json_is_string(word))
            return err_set(ERR_ARG, "%s: words: %s: expected a text", where, value);
    }
    return OK;
}

int job_expand_each(const struct job *j, json_t *root, const char *where)
{
    char line[320];
    json_t *words = json_object_get(root, "words");
    const json_t *list = json_object_get(root, "headline"), *given;
    struct each e = {.job = j, .words = words, .where = line};
    size_t i;
    int rc = check_words(words, where);

    if (!list || rc != OK)
        return rc;
    e.out = json_array();
    json_array_foreach(list, i, given)
    {
        const json_t *axes = json_object_get(given, "each");

        snprintf(line, sizeof(line), "%s: headline %zu", where, i);
        rc = axes && !json_is_array(axes)
                 ? err_set(ERR_ARG, "%s: each: expected a list of axes", line)
                 : expand(&e, given);
        if (rc != OK)
            break;
    }
    if (rc == OK && json_object_set(root, "headline", e.out) != 0)
        rc = err_set(ERR_NOMEM, "%s: out of memory", where);
    json_object_del(root, "words");
    json_decref(e.out);
    return rc;
}
