#include "experiments/report/compare_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/export.h"
#include "experiments/record/head.h"

/* --- rows */

static const json_t *at(const json_t *requests, const char *column, size_t i)
{
    return json_array_get(json_object_get(requests, column), i);
}

static int64_t int_at(const json_t *requests, const char *column, size_t i)
{
    return json_integer_value(at(requests, column, i));
}

static int64_t time_at(const json_t *requests, const char *column, size_t i)
{
    const json_t *v = at(requests, column, i);

    return json_is_integer(v) ? json_integer_value(v) : METRICS_NEVER;
}

static double f64_at(const json_t *requests, const char *column, size_t i)
{
    const json_t *v = at(requests, column, i);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static int read_row(struct metrics_row *r, const json_t *requests, const json_t *tokens,
                    size_t i, int64_t *token_ns, const char *path)
{
    *r =
        (struct metrics_row){.request = (int64_t)i,
                             .warmup = int_at(requests, "warmup", i) != 0,
                             .intended_ns = time_at(requests, "intended_ns", i),
                             .dispatch_ns = time_at(requests, "dispatch_ns", i),
                             .first_token_ns = time_at(requests, "first_token_ns", i),
                             .done_ns = time_at(requests, "done_ns", i),
                             .n_prompt_tok = int_at(requests, "n_prompt_tok", i),
                             .n_output_tok = int_at(requests, "n_output_tok", i),
                             .n_tok = int_at(requests, "n_tok", i),
                             .status = (enum metrics_status)int_at(requests, "status", i),
                             .token_ns = token_ns,
                             .decode_bytes = f64_at(requests, "decode_bytes", i),
                             .prefill_flop = f64_at(requests, "prefill_flop", i)};
    if (r->intended_ns == METRICS_NEVER || r->done_ns == METRICS_NEVER ||
        r->n_tok != (int64_t)json_array_size(tokens) ||
        (r->n_tok > 0 && r->first_token_ns == METRICS_NEVER))
        return err_set(ERR_FORMAT,
                       "%s: request %zu: expected a time for its start, its end and each "
                       "of its %lld tokens",
                       path, i, (long long)r->n_tok);
    for (size_t t = 0; t < (size_t)r->n_tok; t++)
        token_ns[t] = json_integer_value(json_array_get(tokens, t));
    return OK;
}

static int read_rows(struct compare_cell *c, const json_t *cell, const char *path)
{
    const json_t *requests = json_object_get(cell, "requests");
    const json_t *tokens = json_object_get(cell, "token_ns");
    size_t n_tok = 0, i;
    json_t *of;

    c->n_rows = json_array_size(json_object_get(requests, "intended_ns"));
    if (c->n_rows == 0)
        return OK;
    json_array_foreach((json_t *)tokens, i, of) n_tok += json_array_size(of);
    c->rows = mem_new(MEM_HARNESS, c->n_rows, sizeof(*c->rows));
    c->token_ns = mem_new(MEM_HARNESS, n_tok, sizeof(*c->token_ns));
    n_tok = 0;
    for (i = 0; i < c->n_rows; i++) {
        TRY(read_row(&c->rows[i], requests, json_array_get(tokens, i), i,
                     c->token_ns + n_tok, path));
        n_tok += (size_t)c->rows[i].n_tok;
    }
    return OK;
}

/* --- cells */

static const json_t *attribute(const struct compare_cell *c, const char *name)
{
    return json_object_get(c->attributes, name);
}

/* "load.rate_rps=2 repeat=0" without its last word. */
static char *setting_of(const char *key)
{
    const char *repeat = strstr(key, "repeat="), *next;

    while (repeat && (next = strstr(repeat + 1, "repeat=")) != NULL)
        repeat = next;
    return mem_strndup(MEM_HARNESS, key,
                       repeat        ? (size_t)(repeat - key) - (repeat > key)
                       : *key == ' ' ? 0
                                     : strlen(key));
}

static int add_cell(struct compare_records *r, size_t record, const json_t *cell)
{
    const json_t *attributes = json_object_get(cell, "attributes");
    const char *state = json_string_value(json_object_get(attributes, "state"));
    struct compare_cell *c;

    if (json_object_get(attributes, "trial.of"))
        return OK; /* a part of a search, which is a cell of its own */
    if (!state || strcmp(state, "done") != 0) {
        r->n_left_out++;
        return OK;
    }
    c = &r->cells[r->n_cells++];
    c->restart = record;
    c->attributes = attributes;
    c->summary = json_object_get(cell, "summary");
    c->setting = setting_of(json_string_value(json_object_get(attributes, "key")));
    c->slo =
        (struct metrics_slo){.ttft_ms = json_number_value(attribute(c, "slo.ttft_ms")),
                             .tpot_ms = json_number_value(attribute(c, "slo.tpot_ms"))};
    return read_rows(c, cell, r->path);
}

static const char *key_of(const json_t *cell)
{
    return json_str_at(json_object_get(cell, "attributes"), "key", "");
}

/* The later of two attempts at a cell counts. */
static int add_cells_of(struct compare_records *r, size_t record, const json_t *cells)
{
    json_t *latest = json_object(), *cell;
    size_t i;
    int rc = OK;

    json_array_foreach((json_t *)cells, i, cell)
        json_object_set(latest, key_of(cell), cell);
    json_array_foreach((json_t *)cells, i, cell)
    {
        if (rc == OK && json_object_get(latest, key_of(cell)) == cell)
            rc = add_cell(r, record, cell);
    }
    json_decref(latest);
    return rc;
}

static int add_cells(struct compare_records *r)
{
    size_t n = 0;

    for (size_t k = 0; k < r->n; k++)
        n += json_array_size(json_object_get(r->docs[k], "cells"));
    r->cells = mem_new(MEM_HARNESS, n, sizeof(*r->cells));
    for (size_t k = 0; k < r->n; k++)
        TRY(add_cells_of(r, k, json_object_get(r->docs[k], "cells")));
    return OK;
}

/* --- records */

const char *compare_text(const json_t *v, char out[COMPARE_TEXT_BYTES])
{
    if (json_is_number(v))
        snprintf(out, COMPARE_TEXT_BYTES, "%.6g", json_number_value(v));
    else
        snprintf(out, COMPARE_TEXT_BYTES, "%s",
                 json_is_string(v)  ? json_string_value(v)
                 : json_is_true(v)  ? "yes"
                 : json_is_false(v) ? "no"
                                    : "none");
    return out;
}

const char *compare_difference(const char *const *names, int *i, const json_t *a,
                               const json_t *b, char x[COMPARE_TEXT_BYTES],
                               char y[COMPARE_TEXT_BYTES])
{
    for (; names[*i]; ++*i) {
        compare_text(json_object_get(a, names[*i]), x);
        compare_text(json_object_get(b, names[*i]), y);
        if (strcmp(x, y) != 0)
            return names[*i];
    }
    return NULL;
}

const json_t *compare_header(const struct compare_records *r, size_t record)
{
    return json_object_get(r->docs[record], "run");
}

static int add_record(struct compare_records *r, const char *path)
{
    char *text = NULL;
    size_t n;
    int rc;

    r->docs = mem_resize(MEM_HARNESS, r->docs, r->n + 1, sizeof(*r->docs));
    rc = export_text(path, EXPORT_JSON_FULL, &text, &n);
    if (rc == OK)
        rc = json_read_own(&r->docs[r->n], text, n, path);
    r->n += rc == OK;
    mem_free(text);
    return rc;
}

/* The records of a folder, in their order. */
static int add_folder(struct compare_records *r, const char *path)
{
    json_t *paths = NULL, *file;
    size_t i;
    int rc = export_list(&paths, path);

    if (rc == OK && json_array_size(paths) == 0)
        rc = err_set(ERR_NOTFOUND, "%s: no record (*.h5) in this folder", path);
    json_array_foreach(paths, i, file) if (rc == OK) rc =
        add_record(r, json_string_value(file));
    json_decref(paths);
    return rc;
}

/* The members that may not differ among the restarts of a side. */
static int check_alike(const struct compare_records *r)
{
    static const char *const names[] = {"experiment", "commit", "dirty",     "compiler",
                                        "flags",      "isa",    "cpu_model", "n_cpus",
                                        "host",       NULL};
    char x[COMPARE_TEXT_BYTES], y[COMPARE_TEXT_BYTES];

    for (size_t k = 1; k < r->n; k++) {
        int i = 0;
        const char *name = compare_difference(names, &i, compare_header(r, 0),
                                              compare_header(r, k), x, y);

        if (name)
            return err_set(ERR_ARG,
                           "%s: records 1 and %zu differ in %s (%.60s, %.60s), so they "
                           "are not restarts of one setting",
                           r->path, k + 1, name, x, y);
    }
    return OK;
}

int compare_read(struct compare_records *out, const char *path)
{
    struct stat st;
    int rc = OK;

    *out = (struct compare_records){.path = mem_strdup(MEM_HARNESS, path)};
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        rc = add_folder(out, path);
    else
        rc = add_record(out, path);
    if (rc == OK)
        rc = check_alike(out);
    if (rc == OK)
        rc = add_cells(out);
    if (rc == OK && out->n_cells == 0)
        rc = err_set(ERR_NOTFOUND, "%s: no cell was measured", path);
    if (rc != OK)
        compare_records_fini(out);
    return rc;
}

void compare_records_fini(struct compare_records *r)
{
    for (size_t i = 0; i < r->n_cells; i++) {
        mem_free(r->cells[i].setting);
        mem_free(r->cells[i].rows);
        mem_free(r->cells[i].token_ns);
    }
    for (size_t i = 0; i < r->n; i++)
        json_decref(r->docs[i]);
    mem_free(r->cells);
    mem_free(r->docs);
    mem_free(r->path);
    *r = (struct compare_records){0};
}

/* Times are texts of one form, and so are in order where the texts are. */
bool compare_in_turn(const struct compare_records *a, const struct compare_records *b)
{
    const char *last = "";

    if (a->n != b->n || a->n < 2)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const char *x = json_str_at(compare_header(a, i), "utc", ""),
                   *y = json_str_at(compare_header(b, i), "utc", "");
        const char *begin = strcmp(x, y) < 0 ? x : y;

        if (!*begin || strcmp(begin, last) < 0)
            return false;
        last = begin == x ? y : x;
    }
    return true;
}
