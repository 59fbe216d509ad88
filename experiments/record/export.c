#include "experiments/record/export.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/child.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/text.h"
#include "experiments/record/export_read.h"
#include "experiments/record/head.h"
#include "experiments/record/unpack.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

/* --- CSV */

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

static void put_member(FILE *f, const struct record_column *c, const void *column,
                       size_t i)
{
    char text[RECORD_ERROR_BYTES + 1] = "";
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
        memcpy(text, (const char *)column + i * RECORD_ERROR_BYTES, RECORD_ERROR_BYTES);
        put_text(f, text);
        break;
    }
}

static void csv_requests(const struct export_result *r, FILE *f)
{
    fputs("cell,key", f);
    for (const struct record_column *c = record_columns; c->name; c++)
        fprintf(f, ",%s", c->name);
    fputs("\r\n", f);
    for (size_t index = 0; index < r->n_cells; index++) {
        json_t *cell = export_read_cell(r, index, false);
        struct export_requests q;

        export_read_requests(r, index, false, &q);
        for (size_t i = 0; i < q.n; i++) {
            fprintf(f, "%zu,", index);
            put_text(f, json_str_at(json_object_get(cell, "attributes"), "key", ""));
            for (int c = 0; record_columns[c].name; c++) {
                fputc(',', f);
                put_member(f, &record_columns[c], q.column[c], i);
            }
            fputs("\r\n", f);
        }
        export_requests_free(&q);
        json_decref(cell);
    }
}

/* Names of the members of `part` in any cell, in the order of their first appearance; true
 * for those that have an interval. */
static json_t *names_of(const json_t *cells, const char *part)
{
    json_t *names = json_object(), *cell, *v;
    const char *name;
    size_t i;

    json_array_foreach(cells, i, cell)
        json_object_foreach(json_object_get(cell, part), name, v)
    {
        bool has = json_object_get(v, "lo") || json_is_true(json_object_get(names, name));
        json_object_set_new(names, name, json_boolean(has));
    }
    return names;
}

static void csv_cells(const struct export_result *r, FILE *f)
{
    json_t *cells = export_read_cells(r), *cell, *v;
    json_t *attributes = names_of(cells, "attributes");
    json_t *metrics = names_of(cells, "summary");
    static const char *const parts[] = {"value", "lo", "hi"};
    const char *name;
    size_t i;

    fputs("cell", f);
    json_object_foreach(attributes, name, v) fputc(',', f), put_text(f, name);
    json_object_foreach(metrics, name, v)
    {
        fputc(',', f), put_text(f, name);
        if (json_is_true(v))
            fprintf(f, ",%s_lo,%s_hi", name, name);
    }
    fputs("\r\n", f);
    json_array_foreach(cells, i, cell)
    {
        json_t *a = json_object_get(cell, "attributes");

        fprintf(f, "%zu", i);
        json_object_foreach(attributes, name, v) fputc(',', f),
            put_json(f, json_object_get(a, name));
        json_object_foreach(metrics, name, v)
        {
            json_t *m = json_object_get(json_object_get(cell, "summary"), name);
            for (int k = 0; k < (json_is_true(v) ? 3 : 1); k++)
                fputc(',', f), put_json(f, json_object_get(m, parts[k]));
        }
        fputs("\r\n", f);
    }
}

/* The names of the arrays of all cells, in the order of their first appearance. */
static json_t *series_names(const struct export_result *r)
{
    json_t *names = json_object(), *v;
    const char *name;

    for (size_t i = 0; i < r->n_cells; i++) {
        json_t *cell = export_read_cell(r, i, true);

        json_object_foreach(json_object_get(cell, "series"), name, v)
            json_object_set_new(names, name, json_true());
        json_decref(cell);
    }
    return names;
}

static size_t longest_of(const json_t *series)
{
    size_t n = 0;
    json_t *v;
    const char *name;

    json_object_foreach((json_t *)series, name, v)
    {
        size_t k = json_array_size(json_object_get(v, "v"));

        n = k > n ? k : n;
    }
    return n;
}

/* A row for each element of the arrays of all cells. */
static void csv_series(const struct export_result *r, FILE *f)
{
    json_t *names = series_names(r), *v;
    const char *name;

    fputs("cell", f);
    json_object_foreach(names, name, v) fprintf(f, ",%s", name);
    fputs("\r\n", f);
    for (size_t i = 0; i < r->n_cells; i++) {
        json_t *cell = export_read_cell(r, i, true);
        const json_t *series = json_object_get(cell, "series");
        size_t n = longest_of(series);

        for (size_t k = 0; k < n; k++) {
            fprintf(f, "%zu", i);
            json_object_foreach(names, name, v)
            {
                const json_t *x = json_array_get(
                    json_object_get(json_object_get(series, name), "v"), k);

                fputc(',', f);
                if (json_is_number(x))
                    fprintf(f, "%.17g", json_number_value(x));
            }
            fputs("\r\n", f);
        }
        json_decref(cell);
    }
    json_decref(names);
}

/* --- JSON */

/* vLLM's benchmark key and the metric of ours that is the same number. Its TTFT counts
 * from the send, ours from the intended start: with a punctual sender they agree. */
struct pair {
    const char *key, *metric;
};
static const struct pair totals[] = {
    {"duration", "duration_s"},
    {"completed", "n_completed"},
    {"total_input_tokens", "input_tok"},
    {"total_output_tokens", "output_tok"},
    {"request_throughput", "request_throughput_rps"},
    {"request_goodput", "request_goodput_rps"},
    {"output_throughput", "output_throughput_tok_s"},
    {"total_token_throughput", "total_throughput_tok_s"},
};
static const struct pair statistics[] = {
    {"mean", "mean"}, {"median", "p50"}, {"std", "std"},
    {"p90", "p90"},   {"p95", "p95"},    {"p99", "p99"},
};
static const struct pair latencies[] = {
    {"ttft_ms", "ttft_ms"},
    {"tpot_ms", "tpot_ms"},
    {"itl_ms", "itl_ms"},
    {"e2el_ms", "e2e_ms"},
};

/* Copy the metric's value (null: NaN or absent) under another name. */
static void put_as(json_t *out, const json_t *summary, const char *key,
                   const char *metric)
{
    json_t *v = json_object_get(json_object_get(summary, metric), "value");

    json_object_set_new(out, key, v ? json_incref(v) : json_null());
}

static json_t *as_vllm(const json_t *cell)
{
    json_t *attributes = json_object_get(cell, "attributes");
    json_t *summary = json_object_get(cell, "summary");
    json_t *out = json_pack("{s:O s:O s:O}", "cell", json_object_get(attributes, "key"),
                            "attributes", attributes, "summary", summary);

    for (size_t i = 0; i < N(totals); i++)
        put_as(out, summary, totals[i].key, totals[i].metric);
    for (size_t l = 0; l < N(latencies); l++)
        for (size_t s = 0; s < N(statistics); s++) {
            char key[64], metric[64];

            snprintf(key, sizeof(key), "%s_%s", statistics[s].key, latencies[l].key);
            snprintf(metric, sizeof(metric), "%s_%s", statistics[s].metric,
                     latencies[l].metric);
            put_as(out, summary, key, metric);
        }
    return out;
}

static void json(const struct export_result *r, FILE *f)
{
    json_t *cells = export_read_cells(r), *list = json_array(), *cell, *doc;
    char *text;
    size_t i;

    json_array_foreach(cells, i, cell) json_array_append_new(list, as_vllm(cell));
    doc = json_pack("{s:O s:O s:o}", "run", r->root, "headline", r->headline, "cells",
                    list);
    text = json_text(doc, JSON_INDENT(2) | JSON_SORT_KEYS);
    fprintf(f, "%s\n", text);
}

static void put_document(FILE *f, const json_t *v)
{
    char *text = json_text(v, JSON_COMPACT | JSON_SORT_KEYS);

    fputs(text, f);
    mem_free(text);
}

/* A time that never came and a NaN are null. */
static void put_element(FILE *f, const struct record_column *c, const void *column,
                        size_t i)
{
    char error[RECORD_ERROR_BYTES + 1] = "";
    json_t *text;
    double x;

    if (c->kind == RECORD_COLUMN_ERROR) {
        memcpy(error, (const char *)column + i * RECORD_ERROR_BYTES, RECORD_ERROR_BYTES);
        text = json_string_lossy(error);
        json_dumpf(text, f, JSON_ENCODE_ANY);
        json_decref(text);
    } else if (c->kind == RECORD_COLUMN_F64) {
        x = ((const double *)column)[i];
        fprintf(f, isfinite(x) ? "%.17g" : "null", x);
    } else if (c->kind != RECORD_COLUMN_I64) {
        fprintf(f, "%d", ((const int8_t *)column)[i]);
    } else if (((const int64_t *)column)[i] == METRICS_NEVER) {
        fputs("null", f);
    } else {
        fprintf(f, "%" PRId64, ((const int64_t *)column)[i]);
    }
}

static void put_requests(FILE *f, const struct export_requests *q)
{
    fputs(",\n\"requests\":{", f);
    for (int c = 0; q->n && record_columns[c].name; c++) {
        fprintf(f, "%s\"%s\":[", c ? ",\n" : "", record_columns[c].name);
        for (size_t i = 0; i < q->n; i++) {
            fputs(i ? "," : "", f);
            put_element(f, &record_columns[c], q->column[c], i);
        }
        fputc(']', f);
    }
    fputs("},\n\"token_ns\":[", f);
    for (size_t i = 0; i < q->n; i++) {
        fputs(i ? ",[" : "[", f);
        for (int64_t t = q->token_offset[i]; t < q->token_offset[i + 1]; t++)
            fprintf(f, "%s%" PRId64, t > q->token_offset[i] ? "," : "", q->token_ns[t]);
        fputc(']', f);
    }
    fputc(']', f);
}

/* Written as it is read: a record may have millions of tokens. */
static void json_full(const struct export_result *r, FILE *f)
{
    struct export_requests q;

    fputs("{\"run\":", f);
    put_document(f, r->root);
    fputs(",\n\"headline\":", f);
    put_document(f, r->headline);
    fputs(",\n\"cells\":[", f);
    for (size_t i = 0; i < r->n_cells; i++) {
        json_t *cell = export_read_cell(r, i, true);

        fputs(i ? ",\n{\"attributes\":" : "{\"attributes\":", f);
        put_document(f, json_object_get(cell, "attributes"));
        fputs(",\n\"summary\":", f);
        put_document(f, json_object_get(cell, "summary"));
        fputs(",\n\"series\":", f);
        put_document(f, json_object_get(cell, "series"));
        export_read_requests(r, i, true, &q);
        put_requests(f, &q);
        fputc('}', f);
        export_requests_free(&q);
        json_decref(cell);
    }
    fputs("]}\n", f);
}

/* --- Markdown */

/* The metrics that a reader wants first; a cell that publishes none of these shows all it has. */
static const char *const shown[] = {
    "n_completed",           "mean_ttft_ms",           "p50_ttft_ms",
    "p99_ttft_ms",           "mean_tpot_ms",           "p50_tpot_ms",
    "p99_tpot_ms",           "request_throughput_rps", "output_throughput_tok_s",
    "slo_attainment_frac",   "request_goodput_rps",    "decode_tok_s",
    "decode_bandwidth_frac", "prefill_tok_s",          "prefill_peak_frac",
};

static void put_escaped(FILE *f, const char *s)
{
    struct text t = {0};

    text_put_shown(&t, TEXT_MARKDOWN, s, strlen(s));
    if (t.rc != OK)
        child_exit(t.rc);
    fwrite(t.p, 1, t.n, f);
    text_fini(&t);
}

/* `m`: {"value", "unit", "why", "lo", "hi"} or NULL. */
static void put_value(FILE *f, const json_t *m)
{
    const json_t *v = json_object_get(m, "value"), *lo = json_object_get(m, "lo");
    char bound[RECORD_BOUND_BYTES];

    if (json_is_number(v)) {
        fprintf(f, "%.4g", json_number_value(v));
        if (json_is_number(lo))
            fprintf(f, " (%.4g to %.4g)", json_number_value(lo),
                    json_number_value(json_object_get(m, "hi")));
    } else {
        fprintf(f, "%s (", record_bound(m, bound) ? bound : "n/a");
        put_escaped(f, json_str_at(m, "why", "not measured"));
        fputc(')', f);
    }
}

static void put_headline(FILE *f, json_t *headline)
{
    const char *name;
    json_t *m;

    if (json_object_size(headline) == 0)
        return;
    fputs("| headline | value | unit | better |\n|---|---|---|---|\n", f);
    json_object_foreach(headline, name, m)
    {
        fputs("| ", f);
        put_escaped(f, name);
        fputs(" | ", f);
        put_value(f, m);
        fputs(" | ", f);
        put_escaped(f, json_str_at(m, "unit", ""));
        fputs(" | ", f);
        put_escaped(f, json_str_at(m, "better", ""));
        fputs(" |\n", f);
    }
    fputc('\n', f);
}

/* Does any cell publish `name`? Its unit, else NULL. */
static const char *unit_of(const json_t *cells, const char *name)
{
    size_t i;
    json_t *cell;

    json_array_foreach(cells, i, cell)
    {
        json_t *m = json_object_get(json_object_get(cell, "summary"), name);
        if (m)
            return json_str_at(m, "unit", "");
    }
    return NULL;
}

static json_t *columns(const json_t *cells)
{
    json_t *names = json_object();

    for (size_t k = 0; k < N(shown); k++)
        if (unit_of(cells, shown[k]))
            json_object_set_new(names, shown[k], json_true());
    return json_object_size(names) > 0 ? names : names_of(cells, "summary");
}

static void put_cells(FILE *f, const json_t *cells, json_t *names)
{
    json_t *cell, *v;
    const char *name;
    size_t i;

    fputs("| cell | state |", f);
    json_object_foreach(names, name, v)
    {
        const char *unit = unit_of(cells, name);

        fputc(' ', f);
        put_escaped(f, name);
        /* the unit, unless the name already ends in it */
        if (*unit && !strstr(name, unit)) {
            fputs(" (", f);
            put_escaped(f, unit);
            fputc(')', f);
        }
        fputs(" |", f);
    }
    fputs("\n|---|---|", f);
    json_object_foreach(names, name, v) fputs("---:|", f);
    fputc('\n', f);
    json_array_foreach(cells, i, cell)
    {
        json_t *a = json_object_get(cell, "attributes");

        fputs("| ", f);
        put_escaped(f, json_str_at(a, "key", ""));
        fputs(" | ", f);
        put_escaped(f, json_str_at(a, "state", ""));
        fputs(" |", f);
        json_object_foreach(names, name, v)
        {
            fputc(' ', f);
            put_value(f, json_object_get(json_object_get(cell, "summary"), name));
            fputs(" |", f);
        }
        fputc('\n', f);
    }
}

static void markdown(const struct export_result *r, FILE *f)
{
    json_t *cells = export_read_cells(r);
    char origin[512];

    snprintf(origin, sizeof(origin), "%s, %s, commit %.12s%s, %s",
             json_str_at(r->root, "utc", "?"), json_str_at(r->root, "host", "?"),
             json_str_at(r->root, "commit", "?"),
             json_is_true(json_object_get(r->root, "dirty")) ? " with changes" : "",
             json_str_at(r->root, "evidence", "?"));
    fputs("# ", f);
    put_escaped(f, json_str_at(r->root, "experiment", "?"));
    fputs("\n\n", f);
    put_escaped(f, origin);
    fputs("\n\n", f);
    put_headline(f, r->headline);
    put_cells(f, cells, columns(cells));
}

/* --- the formats */

static const struct form {
    const char *name;
    void (*print)(const struct export_result *r, FILE *f);
} forms[] = {
    [EXPORT_CSV_REQUESTS] = {"csv", csv_requests},
    [EXPORT_CSV_CELLS] = {"csv-cells", csv_cells},
    [EXPORT_CSV_SERIES] = {"csv-series", csv_series},
    [EXPORT_JSON] = {"json", json},
    [EXPORT_JSON_FULL] = {"json-full", json_full},
    [EXPORT_MARKDOWN] = {"markdown", markdown},
};

int export_format_find(const char *name, enum export_format *out)
{
    const char *words[N(forms) + 1] = {0};

    for (size_t i = 0; i < N(forms); i++) {
        words[i] = forms[i].name;
        if (strcmp(words[i], name) == 0) {
            *out = (enum export_format)i;
            return OK;
        }
    }
    return name_unknown(
        ERR_NOTFOUND, name, words,
        "format \"%s\": expected csv, csv-cells, csv-series, json, json-full or markdown",
        name);
}

struct task {
    const char *path;
    void (*print)(const struct export_result *r, FILE *f);
    char *bytes; /* [n] of the file; NULL: they are in it */
    size_t n;
};

static int run_task(void *ctx, FILE *out)
{
    const struct task *t = ctx;
    struct export_result r;

    export_read(&r, t->path, t->bytes, t->n);
    t->print(&r, out);
    return OK;
}

int export_text(const char *path, enum export_format format, char **text, size_t *n)
{
    struct task task = {.path = path, .print = forms[format].print};
    const size_t length = strlen(path), packed = strlen(RECORD_PACKED);
    struct stat st;
    int rc;
    struct child child = {.fn = run_task,
                          .ctx = &task,
                          .where = path,
                          .if_crash = "the file is damaged or not a result"};

    *text = NULL;
    if (stat(path, &st) != 0)
        return err_set(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open: %m",
                       path);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return err_set(ERR_FORMAT, "%s: expected an HDF5 file, found %s", path,
                       S_ISREG(st.st_mode) ? "nothing in it" : "no regular file");
    task.n = (size_t)st.st_size;
    if (length > packed && strcmp(path + length - packed, RECORD_PACKED) == 0)
        TRY(export_unpack(&task.bytes, &task.n, path));
    child.foreign_bytes = task.n;
    rc = child_run(&child, text, n);
    mem_free(task.bytes);
    return rc;
}

int export_print(const char *h5_path, enum export_format format, FILE *f)
{
    char *text;
    size_t n;
    int rc = export_text(h5_path, format, &text, &n);

    if (rc == OK && (fwrite(text, 1, n, f) != n || fflush(f) != 0))
        rc = err_set(ERR_IO, "%s: cannot write the export: %m", h5_path);
    mem_free(text);
    return rc;
}

int export_save(const char *h5_path, enum export_format format, const char *out)
{
    char *text = NULL;
    size_t n;
    int rc = file_check_target(out, h5_path);

    if (rc == OK)
        rc = export_text(h5_path, format, &text, &n);
    if (rc == OK)
        rc = file_write(out, text, n);
    mem_free(text);
    return rc;
}
