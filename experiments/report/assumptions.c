#include "experiments/report/assumptions.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define ASSUMPTIONS_BYTES ((size_t)1 << 20)

/* --- the list */

static const struct claim *claim_named(const struct claims *claims, const char *name)
{
    for (size_t i = 0; i < claims->n; i++)
        if (strcmp(claims->v[i].name, name) == 0)
            return &claims->v[i];
    return NULL;
}

/* Every name of `at` is a parameter, and its value one of those that are listed. */
static int check_values(json_t *at, const json_t *parameters, const char *where)
{
    const char *name;
    json_t *value;

    json_object_foreach(at, name, value)
    {
        const json_t *values =
            json_object_get(json_object_get(parameters, name), "values");
        const char *text = json_string_value(value) ? json_string_value(value) : "";

        if (!json_object_get(values, text))
            return err_set(ERR_FORMAT,
                           "%s: expected %s of the paper, found \"%s\"=\"%s\"", where,
                           values ? "a listed value" : "a parameter", name, text);
    }
    return OK;
}

static int check_settings(const json_t *settings, const json_t *parameters,
                          const char *where)
{
    static const char *const keys[] = {"at", "experiment", "headlines", NULL};
    const json_t *s, *at;
    const char *from;
    json_t *to;
    size_t i;

    json_array_foreach(settings, i, s)
    {
        TRY(json_check_keys(s, keys, where));
        TRY(json_get_obj(s, "at", &at, where));
        TRY(check_values((json_t *)at, parameters, where));
        json_object_foreach(
            json_object_get(s, "headlines"), from,
            to) if (!*from ||
                    !json_is_string(
                        to)) return err_set(ERR_FORMAT,
                                            "%s: headlines: expected {\"from\": \"to\"}",
                                            where);
    }
    return OK;
}

static int check_claims(const json_t *group, const json_t *paper,
                        const struct claims *claims, const char *where)
{
    static const char *const keys[] = {"names", "settings", NULL};
    const json_t *names, *settings, *x;
    size_t i;

    TRY(json_check_keys(group, keys, where));
    TRY(json_get_arr(group, "names", &names, where));
    TRY(json_get_arr(group, "settings", &settings, where));
    json_array_foreach(names, i, x)
    {
        const char *name = json_string_value(x) ? json_string_value(x) : "";
        const struct claim *c = claim_named(claims, name);
        char at[200];

        if (!c || c->why || strcmp(c->paper, json_str_at(paper, "paper", "")) != 0)
            return err_set(ERR_FORMAT,
                           "%s: expected a testable claim of the paper, found \"%s\"",
                           where, name);
        snprintf(at, sizeof(at), "%s: %.60s", where, name);
        TRY(check_settings(settings, json_object_get(paper, "parameters"), at));
    }
    return OK;
}

static int check_paper(const json_t *paper, const struct claims *claims, const char *path)
{
    static const char *const keys[] = {"paper", "parameters", "sets", "claims", NULL};
    const json_t *parameters, *sets, *groups, *group;
    const char *name;
    char where[128];
    json_t *set;
    size_t i;

    TRY(json_check_keys(paper, keys, path));
    TRY(json_get_str(paper, "paper", &name, path));
    snprintf(where, sizeof(where), "%.80s: %.40s", path, name);
    TRY(json_get_obj(paper, "parameters", &parameters, where));
    TRY(json_get_obj(paper, "sets", &sets, where));
    TRY(json_get_arr(paper, "claims", &groups, where));
    json_object_foreach((json_t *)sets, name, set)
        TRY(check_values(set, parameters, where));
    json_array_foreach(groups, i, group) TRY(check_claims(group, paper, claims, where));
    return OK;
}

int assumptions_read(json_t **out, const char *path, const struct claims *claims)
{
    static const char *const top[] = {"about", "papers", NULL};
    const json_t *papers, *paper;
    size_t i;

    TRY(json_read_file(out, path, ASSUMPTIONS_BYTES));
    TRY(json_check_keys(*out, top, path));
    TRY(json_get_arr(*out, "papers", &papers, path));
    json_array_foreach(papers, i, paper) TRY(check_paper(paper, claims, path));
    return OK;
}

/* --- the verdicts */

void assumptions_headline(char *out, size_t size, const json_t *setting, const char *name)
{
    const char *from;
    json_t *to;

    snprintf(out, size, "%s", name);
    json_object_foreach(json_object_get(setting, "headlines"), from, to)
    {
        size_t n = strcspn(from, "$");
        char word[256], rest[256], *at;

        snprintf(word, sizeof(word), "%.*s", (int)n, from);
        at = strstr(out, word);
        if (at && (!from[n] || !at[n])) {
            snprintf(rest, sizeof(rest), "%s", at + n);
            snprintf(at, size - (size_t)(at - out), "%s%s", json_string_value(to), rest);
        }
    }
}

struct judge {
    const struct claims *claims;
    claim_record_fn *record;
    void *ctx;
};

/* The verdict on a setting's record, whose headlines get the names that the claim's rule has. */
static const char *verdict_at(const struct judge *j, const struct claim *c,
                              const json_t *setting)
{
    const char *experiment = json_str_at(setting, "experiment", c->experiment), *name;
    const json_t *base = j->record(j->ctx, c->experiment);
    const json_t *other = j->record(j->ctx, experiment);
    json_t *record = other && base ? json_copy((json_t *)other) : NULL;
    json_t *headline = json_object(), *value;
    struct text found = {0};
    enum claim_verdict v;

    json_object_foreach(json_object_get(base, "headline"), name, value)
    {
        char at[256];

        assumptions_headline(at, sizeof(at), setting, name);
        value = json_object_get(json_object_get(other, "headline"), at);
        if (value)
            json_object_set(headline, name, value);
    }
    if (record)
        json_object_set(record, "headline", headline);
    v = claim_judge(c, record, &found);
    text_fini(&found);
    json_decref(headline);
    json_decref(record);
    return claim_verdict_name(v);
}

static bool is_verdict(const char *text, enum claim_verdict v)
{
    return strcmp(text, claim_verdict_name(v)) == 0;
}

static bool is_held(const char *verdict)
{
    return is_verdict(verdict, CLAIM_REPRODUCED) || is_verdict(verdict, CLAIM_IN_SHAPE) ||
           is_verdict(verdict, CLAIM_CONSISTENT);
}

/* Are all values of one setting those of a set or of another setting, but for `n` of them? The
 * last of those is *name. */
static bool is_like(const json_t *at, const json_t *set, int n, const char **name)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)at, key,
                        value) if (!json_equal(value, json_object_get(set, key)))
    {
        *name = key;
        n--;
    }
    return n == 0;
}

/* {parameter: true} of those that alone make a claim hold or fail. */
static json_t *turned_by(const json_t *verdicts, const json_t *columns)
{
    json_t *out = json_object();
    const char *a, *b, *name;
    const json_t *x, *y;
    size_t i, k;

    json_array_foreach(verdicts, i, x) json_array_foreach(verdicts, k, y)
    {
        a = json_string_value(x);
        b = json_string_value(y);
        if (a && b && is_held(a) && is_verdict(b, CLAIM_NOT_REPRODUCED) &&
            is_like(json_array_get(columns, i), json_array_get(columns, k), 1, &name))
            json_object_set_new(out, name, json_true());
    }
    return out;
}

static size_t column_of(json_t *columns, json_t *at)
{
    const json_t *column;
    size_t i;

    json_array_foreach(columns, i, column) if (json_equal(column, at)) return i;
    json_array_append(columns, at);
    return i;
}

/* One claim in its settings: a row of the matrix. */
static json_t *judge_claim(const struct judge *j, const struct claim *c,
                           const json_t *settings, json_t *columns, json_t *sets)
{
    json_t *verdicts = json_array(), *of_sets = json_object(), *set;
    const char *name, *differs;
    const json_t *s;
    size_t i;

    json_array_foreach(settings, i, s)
    {
        json_t *at = json_object_get(s, "at"), *v = json_string(verdict_at(j, c, s));
        size_t column = column_of(columns, at);

        json_object_foreach(sets, name, set) if (is_like(at, set, 0, &differs))
            json_object_set(of_sets, name, v);
        while (json_array_size(verdicts) <= column)
            json_array_append_new(verdicts, json_null());
        json_array_set_new(verdicts, column, v);
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "name", c->name, "verdicts", verdicts,
                     "sets", of_sets, "turned_by", turned_by(verdicts, columns));
}

static json_t *judge_paper(const struct judge *j, const json_t *paper)
{
    json_t *columns = json_array(), *rows = json_array(), *out;
    const json_t *group, *name;
    size_t i, k;

    json_array_foreach(json_object_get(paper, "claims"), i, group)
        json_array_foreach(json_object_get(group, "names"), k, name)
            json_array_append_new(
                rows, judge_claim(j, claim_named(j->claims, json_string_value(name)),
                                  json_object_get(group, "settings"), columns,
                                  json_object_get(paper, "sets")));
    out = json_copy((json_t *)paper);
    json_object_set_new(out, "settings", columns);
    json_object_set_new(out, "claims", rows);
    return out;
}

json_t *assumptions_judge(const json_t *list, const struct claims *claims,
                          claim_record_fn *record, void *ctx)
{
    const struct judge j = {claims, record, ctx};
    json_t *out = json_array();
    const json_t *paper;
    size_t i;

    json_array_foreach(json_object_get(list, "papers"), i, paper)
        json_array_append_new(out, judge_paper(&j, paper));
    return out;
}

/* --- the page */

static char mark_of(const char *verdict)
{
    static const char marks[] = {[CLAIM_REPRODUCED] = 'R',   [CLAIM_IN_SHAPE] = 'S',
                                 [CLAIM_CONSISTENT] = 'c',   [CLAIM_UNDECIDED] = '?',
                                 [CLAIM_NO_INTERVAL] = 'i',  [CLAIM_NOT_REPRODUCED] = '-',
                                 [CLAIM_NOT_TESTABLE] = 'x', [CLAIM_NO_RECORD] = 'n'};

    for (int k = 0; verdict && k <= CLAIM_NO_RECORD; k++)
        if (is_verdict(verdict, (enum claim_verdict)k))
            return marks[k];
    return '.';
}

static void put_parameters(struct text *out, const json_t *parameters)
{
    const char *name, *value;
    json_t *p, *v;

    json_object_foreach((json_t *)parameters, name, p)
    {
        text_printf(out, "  %s: %s\n     tried:", name, json_str_at(p, "printed", ""));
        json_object_foreach(json_object_get(p, "values"), value, v)
            text_printf(out, " %s%s", value, json_is_null(v) ? " (not tried)" : "");
        text_puts(out, "\n");
    }
}

static void put_settings(struct text *out, const json_t *columns, json_t *sets)
{
    const char *name, *differs;
    const json_t *at;
    json_t *value;
    size_t i;

    json_array_foreach(columns, i, at)
    {
        text_printf(out, "  %2zu ", i + 1);
        json_object_foreach((json_t *)at, name, value)
            text_printf(out, " %s=%s", name, json_string_value(value));
        json_object_foreach(sets, name, value) if (is_like(at, value, 0, &differs))
            text_printf(out, " (%s)", name);
        text_puts(out, "\n");
    }
}

static void put_claim(struct text *out, const json_t *row, size_t n_columns)
{
    const json_t *verdicts = json_object_get(row, "verdicts");
    const char *name, *before = "; turned by ";
    int n_held = 0, n_judged = 0;
    json_t *value;

    text_printf(out, "  %-42s", json_str_at(row, "name", ""));
    for (size_t i = 0; i < n_columns; i++) {
        char mark = mark_of(json_string_value(json_array_get(verdicts, i)));

        text_printf(out, " %2c", mark);
        n_held += strchr("RSc", mark) != NULL;
        n_judged += strchr("RSc?i-", mark) != NULL;
    }
    text_printf(out, "  %d of %d", n_held, n_judged);
    json_object_foreach(json_object_get(row, "turned_by"), name, value)
    {
        text_printf(out, "%s%s", before, name);
        before = ", ";
    }
    text_puts(out, "\n");
}

/* All claims of a paper under one set of values: those that were not tried with it are named. */
static void put_set(struct text *out, const char *set, const json_t *rows)
{
    int n_held = 0, n_tried = 0;
    const json_t *row;
    size_t i;

    text_printf(out, "  %s:", set);
    json_array_foreach(rows, i, row)
    {
        const char *v = json_str_at(json_object_get(row, "sets"), set, NULL);

        n_tried += v != NULL;
        n_held += v && is_held(v);
        if (!v)
            text_printf(out, "%s %s", n_tried == (int)i ? " not tried for" : ",",
                        json_str_at(row, "name", ""));
    }
    text_printf(out, "%s %d of %d hold\n", n_tried < (int)i ? ";" : "", n_held, n_tried);
}

void assumptions_print(struct text *out, const json_t *matrix)
{
    const json_t *paper, *row;
    const char *set;
    json_t *values;
    size_t i, k;

    text_puts(out, "R reproduced, S in shape, c consistent, ? undecided, i no interval, "
                   "- not reproduced, x not testable, n no record, . not tried\n");
    json_array_foreach(matrix, i, paper)
    {
        const json_t *columns = json_object_get(paper, "settings");
        const json_t *rows = json_object_get(paper, "claims");
        json_t *sets = json_object_get(paper, "sets");

        text_printf(out, "\n%s\n", json_str_at(paper, "paper", ""));
        put_parameters(out, json_object_get(paper, "parameters"));
        put_settings(out, columns, sets);
        text_printf(out, "  %-42s", "");
        for (k = 0; k < json_array_size(columns); k++)
            text_printf(out, " %2zu", k + 1);
        text_puts(out, "  holds in\n");
        json_array_foreach(rows, k, row) put_claim(out, row, json_array_size(columns));
        json_object_foreach(sets, set, values) put_set(out, set, rows);
    }
}
