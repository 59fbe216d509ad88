#include "experiments/harness/export_forms.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/harness/metrics.h"

/* RFC 4180: quotes where the text needs them. */
static void put_text(FILE *f, const char *s)
{
    if (!s[strcspn(s, ",\"\r\n")]) {
        fputs(s, f);
        return;
    }
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"')
            fputc('"', f);
        fputc(*s, f);
    }
    fputc('"', f);
}

static void put_f64(FILE *f, double v)
{
    if (!isnan(v))
        fprintf(f, "%.17g", v);
}

static void put_json(FILE *f, const json_t *v)
{
    if (json_is_string(v))
        put_text(f, json_string_value(v));
    else if (json_is_integer(v))
        fprintf(f, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        put_f64(f, json_real_value(v));
    else if (json_is_boolean(v))
        fputs(json_is_true(v) ? "1" : "0", f);
}

/* --- requests */

static void put_member(FILE *f, const struct record_column *c, const void *column,
                       size_t i)
{
    char text[EXPORT_ERROR_WIDTH + 1] = "";
    int64_t v;

    switch (c->kind) {
    case RECORD_COLUMN_I64:
        v = ((const int64_t *)column)[i];
        if (v != METRICS_NEVER)
            fprintf(f, "%" PRId64, v);
        break;
    case RECORD_COLUMN_F64:
        put_f64(f, ((const double *)column)[i]);
        break;
    case RECORD_COLUMN_BOOL:
        fprintf(f, "%d", ((const int8_t *)column)[i]);
        break;
    case RECORD_COLUMN_STATUS:
        v = ((const int8_t *)column)[i];
        fputs(v >= 0 && v <= METRICS_REJECTED
                  ? metrics_status_name((enum metrics_status)v)
                  : "?",
              f);
        break;
    case RECORD_COLUMN_ERROR:
        memcpy(text, (const char *)column + i * EXPORT_ERROR_WIDTH, EXPORT_ERROR_WIDTH);
        put_text(f, text);
        break;
    }
}

static int put_cell_requests(const struct export_result *r, size_t index, FILE *f)
{
    struct export_requests q;
    json_t *cell;
    const char *key;
    int rc = export_cell(r, index, &cell);

    if (rc != OK)
        return rc;
    key = json_string_value(json_object_get(json_object_get(cell, "attributes"), "key"));
    rc = export_requests(r, index, &q);
    for (size_t i = 0; rc == OK && i < q.n; i++) {
        fprintf(f, "%zu,", index);
        put_text(f, key ? key : "");
        for (int c = 0; record_columns[c].name; c++) {
            fputc(',', f);
            put_member(f, &record_columns[c], q.column[c], i);
        }
        fputs("\r\n", f);
    }
    if (rc == OK)
        export_requests_free(&q);
    json_decref(cell);
    return rc;
}

int export_csv_requests(const struct export_result *r, FILE *f)
{
    int rc = OK;

    fputs("cell,key", f);
    for (const struct record_column *c = record_columns; c->name; c++)
        fprintf(f, ",%s", c->name);
    fputs("\r\n", f);
    for (size_t i = 0; rc == OK && i < r->n_cells; i++)
        rc = put_cell_requests(r, i, f);
    return rc;
}

/* --- cells */

/* Names of the members of `part` in any cell, in the order of their first appearance. */
static int collect(const json_t *cells, const char *part, json_t *names)
{
    size_t i;
    json_t *cell, *v;
    const char *name;

    json_array_foreach(cells, i, cell)
    {
        json_object_foreach(json_object_get(cell, part), name, v)
        {
            if (!json_object_get(names, name) &&
                json_object_set_new(names, name, json_true()) != 0)
                return err_set(ERR_NOMEM, "out of memory collecting columns");
        }
    }
    return OK;
}

static void put_table(const json_t *cells, const json_t *attributes,
                      const json_t *metrics, FILE *f)
{
    size_t i;
    json_t *cell, *v;
    const char *name;

    fputs("cell", f);
    json_object_foreach((json_t *)attributes, name, v) fputc(',', f), put_text(f, name);
    json_object_foreach((json_t *)metrics, name, v) fputc(',', f), put_text(f, name);
    fputs("\r\n", f);
    json_array_foreach(cells, i, cell)
    {
        json_t *a = json_object_get(cell, "attributes"),
               *s = json_object_get(cell, "summary");
        fprintf(f, "%zu", i);
        json_object_foreach((json_t *)attributes, name, v)
        {
            fputc(',', f);
            put_json(f, json_object_get(a, name));
        }
        json_object_foreach((json_t *)metrics, name, v)
        {
            fputc(',', f);
            put_json(f, json_object_get(json_object_get(s, name), "value"));
        }
        fputs("\r\n", f);
    }
}

int export_csv_cells(const struct export_result *r, FILE *f)
{
    json_t *cells = NULL, *attributes = json_object(), *metrics = json_object();
    int rc = attributes && metrics ? export_cells(r, &cells)
                                   : err_set(ERR_NOMEM, "%s: out of memory", r->path);

    if (rc == OK)
        rc = collect(cells, "attributes", attributes);
    if (rc == OK)
        rc = collect(cells, "summary", metrics);
    if (rc == OK)
        put_table(cells, attributes, metrics, f);
    json_decref(cells);
    json_decref(attributes);
    json_decref(metrics);
    return rc;
}
