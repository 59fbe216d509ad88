#include "experiments/record/journal_cell.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/utf8.h"
#include "experiments/record/fields.h"

/* --- what a record can hold */

int journal_key_check(const char *key, const char *where)
{
    const char *p = key;

    while ((unsigned char)*p >= ' ')
        p++;
    if (p > key && !*p && utf8_valid(key, (size_t)(p - key)))
        return OK;
    return err_set(ERR_ARG, "%s: a cell needs a key of printable UTF-8", where);
}

/* Names become names of HDF5 objects, which are different in a group. */
static int check_name(json_t *seen, const char *name, const char *key, const char *where)
{
    if (!name[0] || strchr(name, '/') || strcmp(name, ".") == 0)
        return err_set(ERR_ARG, "%s: cell %s: \"%s\" cannot name a metric or a series",
                       where, key, name);
    if (json_object_get(seen, name))
        return err_set(ERR_ARG, "%s: cell %s: \"%s\" is there twice", where, key, name);
    return json_object_set_new_nocheck(seen, name, json_null()) == 0
               ? OK
               : err_set(ERR_NOMEM, "%s: out of memory", where);
}

static int check_names(const struct record_cell *c, const char *where)
{
    json_t *values = json_object(), *series = json_object();
    int rc = OK;

    for (size_t i = 0; rc == OK && i < c->n_values; i++)
        rc = check_name(values, c->values[i].name, c->key, where);
    for (size_t i = 0; rc == OK && i < c->n_series; i++)
        rc = check_name(series, c->series[i].name, c->key, where);
    json_decref(values);
    json_decref(series);
    return rc;
}

int journal_cell_check(const struct record_cell *c, const char *where)
{
    int rc = journal_key_check(c->key, where);

    if (rc == OK && !json_is_object(c->attributes))
        rc = err_set(ERR_ARG, "%s: cell %s: attributes must be an object", where, c->key);
    for (size_t i = 0; rc == OK && i < c->n_rows; i++)
        if (c->rows[i].n_tok < 0 || (c->rows[i].n_tok > 0 && !c->rows[i].token_ns))
            rc = err_set(ERR_ARG, "%s: cell %s: request %lld: %lld tokens without times",
                         where, c->key, (long long)c->rows[i].request,
                         (long long)c->rows[i].n_tok);
    return rc == OK ? check_names(c, where) : rc;
}

/* --- to JSON. A member that could not be made is NULL, which json_pack(),
 * json_object_set_new() and json_array_append_new() refuse. */

static json_t *number(double x)
{
    return isnan(x)   ? json_null()
           : isinf(x) ? json_string(x < 0 ? "-inf" : "inf")
                      : json_real(x);
}

static json_t *time_or_null(int64_t ns)
{
    return ns == METRICS_NEVER ? json_null() : json_integer(ns);
}

/* Steals v. An array that failed is NULL from then on. */
static void append(json_t **list, json_t *v)
{
    if (json_array_append_new(*list, v) == 0)
        return;
    json_decref(*list);
    *list = NULL;
}

static json_t *member(const struct record_column *c, const struct metrics_row *row)
{
    const void *p = (const char *)row + c->offset;

    switch (c->kind) {
    case RECORD_COLUMN_I64:
        return time_or_null(*(const int64_t *)p);
    case RECORD_COLUMN_F64:
        return number(*(const double *)p);
    case RECORD_COLUMN_BOOL:
        return json_boolean(*(const bool *)p);
    case RECORD_COLUMN_STATUS:
        return json_integer(*(const enum metrics_status *)p);
    default:
        return json_string_lossy(p);
    }
}

static json_t *requests_json(const struct record_cell *cell)
{
    json_t *o = json_object(), *times = json_array(), *list;
    bool failed = !o;

    for (const struct record_column *c = record_columns; c->name; c++) {
        list = json_array();
        for (size_t i = 0; i < cell->n_rows; i++)
            append(&list, member(c, &cell->rows[i]));
        failed |= json_object_set_new(o, c->name, list) != 0;
    }
    for (size_t i = 0; i < cell->n_rows; i++) {
        list = json_array();
        for (int64_t k = 0; k < cell->rows[i].n_tok; k++)
            append(&list, json_integer(cell->rows[i].token_ns[k]));
        append(&times, list);
    }
    failed |= json_object_set_new(o, "token_ns", times) != 0;
    if (!failed)
        return o;
    json_decref(o);
    return NULL;
}

/* Steals o, and returns it with its kind of evidence, which may be NULL. */
static json_t *with_evidence(json_t *o, const char *kind)
{
    if (!o || !kind || json_object_set_new(o, "evidence", json_string(kind)) == 0)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *value_json(const struct metrics_value *v)
{
    json_t *o = json_pack("{s:o s:o s:o s:o}", "name", json_string_lossy(v->name), "unit",
                          json_string_lossy(v->unit), "value", number(v->value), "why",
                          json_string_lossy(v->why));

    if (o && v->has_interval &&
        (json_object_set_new(o, "lo", number(v->lo)) != 0 ||
         json_object_set_new(o, "hi", number(v->hi)) != 0)) {
        json_decref(o);
        return NULL;
    }
    return with_evidence(o, v->evidence);
}

json_t *journal_cell_json(const struct record_cell *c)
{
    json_t *values = json_array(), *series = json_array(), *o;

    for (size_t i = 0; i < c->n_values; i++)
        append(&values, value_json(&c->values[i]));
    for (size_t i = 0; i < c->n_series; i++) {
        const struct metrics_series *s = &c->series[i];
        json_t *list = json_array();

        for (size_t k = 0; k < s->n; k++)
            append(&list, number(s->v[k]));
        append(&series, with_evidence(json_pack("{s:o s:o s:o}", "name",
                                                json_string_lossy(s->name), "unit",
                                                json_string_lossy(s->unit), "v", list),
                                      s->evidence));
    }
    o = with_evidence(json_pack("{s:s s:s s:O s:o s:o s:o}", "key", c->key, "state",
                                record_states[c->state], "attributes", c->attributes,
                                "values", values, "series", series, "requests",
                                c->n_rows ? requests_json(c) : json_null()),
                      c->evidence);
    if (!o)
        err_set(ERR_NOMEM, "journal: cell %s: out of memory", c->key);
    return o;
}

/* --- from JSON. The line's CRC was right: what does not fit is another version's. */

static bool take_number(const json_t *v, double *out)
{
    const char *text = json_string_value(v);

    *out = json_is_null(v) ? (double)NAN
           : text          ? strtod(text, NULL)
                           : json_number_value(v);
    return json_is_null(v) || text || json_is_number(v);
}

static bool take_text(const json_t *v, char *out, size_t n)
{
    const char *text = json_string_value(v);

    return text && (size_t)snprintf(out, n, "%s", text) < n;
}

/* Absent: NULL. */
static bool take_evidence(const json_t *o, const char **out)
{
    const json_t *v = json_object_get(o, "evidence");

    *out = metrics_evidence_find(json_string_value(v));
    return !v || *out;
}

static bool take_member(const struct record_column *c, const json_t *v,
                        struct metrics_row *row)
{
    void *p = (char *)row + c->offset;
    json_int_t i = json_integer_value(v);

    switch (c->kind) {
    case RECORD_COLUMN_I64:
        *(int64_t *)p = json_is_null(v) ? METRICS_NEVER : i;
        return json_is_null(v) || json_is_integer(v);
    case RECORD_COLUMN_F64:
        return take_number(v, p);
    case RECORD_COLUMN_BOOL:
        *(bool *)p = json_is_true(v);
        return json_is_boolean(v);
    case RECORD_COLUMN_STATUS:
        *(enum metrics_status *)p = (enum metrics_status)i;
        return json_is_integer(v) && i >= METRICS_OK && i <= METRICS_REJECTED;
    default:
        return take_text(v, p, sizeof(row->error));
    }
}

static bool take_times(struct journal_parsed *p, const json_t *times)
{
    size_t at = 0, i, k;
    json_t *list, *v;

    if (json_array_size(times) != p->cell.n_rows)
        return false;
    json_array_foreach(times, i, list)
    {
        if (!json_is_array(list) || (int64_t)json_array_size(list) != p->rows[i].n_tok)
            return false;
        p->rows[i].token_ns = p->token_ns + at;
        json_array_foreach(list, k, v) p->token_ns[at++] = json_integer_value(v);
    }
    return true;
}

static int bad(const struct journal_parsed *p, const char *part)
{
    return err_set(ERR_FORMAT, "%s: cell %s: %s: not as this version writes it", p->where,
                   p->cell.key ? p->cell.key : "?", part);
}

static int take_requests(struct journal_parsed *p, const json_t *o)
{
    const json_t *times = json_object_get(o, "token_ns");
    size_t n = json_array_size(times), n_tok = 0, i;
    json_t *list, *v;

    json_array_foreach((json_t *)times, i, list) n_tok += json_array_size(list);
    p->rows = mem_new(MEM_HARNESS, n, sizeof(*p->rows));
    p->token_ns = mem_new(MEM_HARNESS, n_tok, sizeof(*p->token_ns));
    if (!p->rows || !p->token_ns)
        return ERR_NOMEM;
    p->cell.rows = p->rows;
    p->cell.n_rows = n;
    for (const struct record_column *c = record_columns; c->name; c++) {
        list = json_object_get(o, c->name);
        if (json_array_size(list) != n)
            return bad(p, c->name);
        json_array_foreach(list, i,
                           v) if (!take_member(c, v, &p->rows[i])) return bad(p, c->name);
    }
    return take_times(p, times) ? OK : bad(p, "token_ns");
}

static int take_values(struct journal_parsed *p, const json_t *list)
{
    size_t i;
    json_t *o;

    p->values = mem_new(MEM_HARNESS, json_array_size(list), sizeof(*p->values));
    if (!p->values)
        return ERR_NOMEM;
    p->cell.values = p->values;
    json_array_foreach((json_t *)list, i, o)
    {
        struct metrics_value *v = &p->values[p->cell.n_values++];

        if (!take_text(json_object_get(o, "name"), v->name, sizeof(v->name)) ||
            !take_text(json_object_get(o, "unit"), v->unit, sizeof(v->unit)) ||
            !take_text(json_object_get(o, "why"), v->why, sizeof(v->why)) ||
            !take_evidence(o, &v->evidence) ||
            !take_number(json_object_get(o, "value"), &v->value))
            return bad(p, "values");
        v->has_interval = json_object_get(o, "lo");
        if (v->has_interval && (!take_number(json_object_get(o, "lo"), &v->lo) ||
                                !take_number(json_object_get(o, "hi"), &v->hi)))
            return bad(p, "values");
    }
    return OK;
}

static int take_series(struct journal_parsed *p, const json_t *list)
{
    size_t i, k;
    json_t *o, *x;

    p->series = mem_new(MEM_HARNESS, json_array_size(list), sizeof(*p->series));
    if (!p->series)
        return ERR_NOMEM;
    p->cell.series = p->series;
    json_array_foreach((json_t *)list, i, o)
    {
        struct metrics_series *s = &p->series[p->cell.n_series++];
        const json_t *v = json_object_get(o, "v");

        if (!take_text(json_object_get(o, "name"), s->name, sizeof(s->name)) ||
            !take_text(json_object_get(o, "unit"), s->unit, sizeof(s->unit)) ||
            !take_evidence(o, &s->evidence))
            return bad(p, "series");
        s->n = json_array_size(v);
        s->v = mem_new(MEM_HARNESS, s->n, sizeof(*s->v));
        if (!s->v)
            return ERR_NOMEM;
        json_array_foreach((json_t *)v, k,
                           x) if (!take_number(x, &s->v[k])) return bad(p, s->name);
    }
    return OK;
}

int journal_cell_parse(struct journal_parsed *out, const json_t *v, const char *where)
{
    struct record_cell *c = &out->cell;
    const char *state = json_str_at(v, "state", "");
    const int state_index = name_index(record_states, state);
    const json_t *requests = json_object_get(v, "requests");
    int rc = OK;

    *out = (struct journal_parsed){.where = where};
    c->key = json_string_value(json_object_get(v, "key"));
    c->attributes = json_object_get(v, "attributes");
    if (!c->key || !json_is_object(c->attributes) || state_index < 0)
        return bad(out, "state");
    c->state = (enum record_state)state_index;
    if (!take_evidence(v, &c->evidence))
        return bad(out, "evidence");
    if (!json_is_null(requests))
        rc = take_requests(out, requests);
    if (rc == OK)
        rc = take_values(out, json_object_get(v, "values"));
    if (rc == OK)
        rc = take_series(out, json_object_get(v, "series"));
    if (rc == OK)
        rc = journal_cell_check(c, where);
    return rc == ERR_ARG ? ERR_FORMAT : rc;
}

void journal_parsed_fini(struct journal_parsed *p)
{
    for (size_t i = 0; i < p->cell.n_series; i++)
        mem_free(p->series[i].v);
    mem_free(p->rows);
    mem_free(p->token_ns);
    mem_free(p->values);
    mem_free(p->series);
    *p = (struct journal_parsed){0};
}
