#include "experiments/record/verify.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/child.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/chain.h"
#include "experiments/record/export_read.h"
#include "experiments/record/rule.h"
#include "experiments/record/unpack.h"

/* --- for rules */

static void add_fault(struct record_view *v, const char *place, const char *fmt,
                      va_list args)
{
    const size_t n_array = strcspn(place, "[");
    json_t *key = json_sprintf("%s/%.*s", v->where, (int)n_array, place), *fault;
    const char *name = json_string_value(key);
    char text[256];

    fault = json_object_get(v->faults, name);
    if (fault) {
        json_object_set_new(fault, "n", json_integer(json_int_at(fault, "n") + 1));
    } else {
        vsnprintf(text, sizeof(text), fmt, args);
        fault = json_pack("{s:o s:i}", "line",
                          json_sprintf("%s/%s: %s", v->where, place, text), "n", 1);
        json_object_set_new(v->faults, name, fault);
    }
    json_decref(key);
}

void record_fault(struct record_view *v, const char *place, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add_fault(v, place, fmt, args);
    va_end(args);
}

void record_fault_row(struct record_view *v, const char *column, size_t i,
                      const char *fmt, ...)
{
    char place[96];
    va_list args;

    snprintf(place, sizeof(place), "requests/%s[%zu]", column, i);
    va_start(args, fmt);
    add_fault(v, place, fmt, args);
    va_end(args);
}

double record_value(const json_t *numbers, const char *name)
{
    return json_f64_at(json_object_get(numbers, name), "value");
}

bool record_same(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return fabs(a - b) <= 1e-9 * fmax(1e-3, fmax(fabs(a), fabs(b)));
}

/* --- in the child: a cell as rules see it */

struct verify {
    struct export_result r;
    struct record_view v;
    char chain[SHA256_TEXT];
    size_t n_requests;
    bool chained;
};

/* Are all of them what they can be? Only then are they read as rows. */
static bool check_small(struct record_view *v, const struct export_requests *q)
{
    const size_t n_before = json_object_size(v->faults);

    for (int c = 0; record_columns[c].name; c++) {
        const int8_t *x = q->column[c];
        const int most =
            record_columns[c].kind == RECORD_COLUMN_BOOL ? 1 : METRICS_REJECTED;

        if (record_columns[c].kind != RECORD_COLUMN_BOOL &&
            record_columns[c].kind != RECORD_COLUMN_STATUS)
            continue;
        for (size_t i = 0; i < q->n; i++)
            if (x[i] < 0 || x[i] > most)
                record_fault_row(v, record_columns[c].name, i,
                                 "expected 0 to %d, found %d", most, x[i]);
    }
    return json_object_size(v->faults) == n_before;
}

static void set_member(struct metrics_row *row, const struct record_column *c,
                       const void *column, size_t i)
{
    char *to = (char *)row + c->offset;

    if (c->kind == RECORD_COLUMN_STATUS)
        *(enum metrics_status *)to = (enum metrics_status)((const int8_t *)column)[i];
    else if (c->kind == RECORD_COLUMN_BOOL)
        *(bool *)to = ((const int8_t *)column)[i];
    else if (c->kind == RECORD_COLUMN_ERROR)
        memcpy(to, (const char *)column + i * RECORD_ERROR_BYTES, RECORD_ERROR_BYTES - 1);
    else
        memcpy(to, (const char *)column + i * 8, 8);
}

/* The tokens of each request are as many as it says, and all are somebody's. */
static struct metrics_row *make_rows(struct record_view *v,
                                     const struct export_requests *q)
{
    struct metrics_row *rows;
    bool counted = true;

    if (!check_small(v, q))
        return NULL;
    rows = mem_new(MEM_HARNESS, q->n + 1, sizeof(*rows));
    for (size_t i = 0; i < q->n; i++) {
        const int64_t n_tok = q->token_offset[i + 1] - q->token_offset[i];

        for (int c = 0; record_columns[c].name; c++)
            set_member(&rows[i], &record_columns[c], q->column[c], i);
        rows[i].token_ns = q->token_ns + q->token_offset[i];
        if (rows[i].n_tok == n_tok)
            continue;
        counted = false;
        record_fault_row(v, "n_tok", i,
                         "expected %lld, the number of its times, found %lld",
                         (long long)n_tok, (long long)rows[i].n_tok);
    }
    if (counted)
        return rows;
    mem_free(rows);
    return NULL;
}

static double *numbers_of(const json_t *list, size_t *n)
{
    double *x;

    *n = json_array_size(list);
    x = mem_new(MEM_HARNESS, *n + 1, sizeof(*x));
    for (size_t i = 0; i < *n; i++) {
        const json_t *one = json_array_get(list, i);

        x[i] = json_is_number(one) ? json_number_value(one) : NAN;
    }
    return x;
}

static double *numbers_of_series(const struct record_view *v, const char *name, size_t *n)
{
    return numbers_of(json_object_get(json_object_get(v->series, name), "v"), n);
}

static double or_zero(double x)
{
    return isnan(x) ? 0 : x;
}

/* Set the input that the metrics of a cell are computed from. The reasons are not compared. */
static void set_input(struct record_view *v, const struct metrics_row *rows,
                      size_t n_rows)
{
    size_t n_scale, n_s, n_joules;
    double *scale = numbers_of_series(v, "slo_scale", &n_scale);
    double *s = numbers_of_series(v, "energy_s", &n_s);
    double *joules = numbers_of_series(v, "energy_joules", &n_joules);

    v->in = (struct metrics_input){
        .rows = rows,
        .n_rows = rows ? n_rows : 0,
        .slo = {.ttft_ms = or_zero(json_f64_at(v->attributes, "slo.ttft_ms")),
                .tpot_ms = or_zero(json_f64_at(v->attributes, "slo.tpot_ms")),
                .scale = scale,
                .n_scale = (int)n_scale},
        .read_gbps = json_f64_at(v->attributes, "bound.read_gbps"),
        .peak_gflops = json_f64_at(v->attributes, "bound.peak_gflops"),
        .read_why = "not known",
        .peak_why = "not known",
        .energy_s = s,
        .energy_joules = joules,
        .n_energy = n_s < n_joules ? n_s : n_joules};
}

static void keep_for_later(struct record_view *v)
{
    const char *key = json_str_at(v->attributes, "key", "");

    if (json_object_get(v->attributes, "trial.of"))
        json_object_set_new(
            v->trials, key,
            json_pack("{s:O s:O}", "attributes", v->attributes, "summary", v->summary));
    json_object_set_new(v->seen, key, json_integer(json_int_at(v->seen, key) + 1));
}

/* --- in the child: the chain */

/* The link of object `name` below `path`, which is absent where the cell serves nothing. */
static void check_link(struct verify *x, const char *path, const char *name)
{
    char stored[SHA256_TEXT] = "";
    hid_t object = export_open_object(&x->r, path, name, RECORD_CHAIN_ATTRIBUTE, stored);

    if (object < 0)
        return;
    if (record_chain_next(x->chain, object, name) != OK)
        child_exit(err_prefix(ERR_FORMAT, "%s: %s", x->r.path, path));
    H5Oclose(object);
    if (strcmp(stored, x->chain) != 0)
        record_fault(
            &x->v, strcmp(name, "/") == 0 ? "" : name,
            "expected the hash %.16s..., by what is in it and before it, found %.16s",
            x->chain, stored[0] ? stored : "none");
    if (stored[0]) /* what follows is judged by itself */
        snprintf(x->chain, sizeof(x->chain), "%s", stored);
}

/* --- in the child: all of it */

static void check_chain_of_cell(struct verify *x)
{
    static const char *const links[] = {"attributes_json", "requests", "tokens",
                                        "summary", "series"};

    for (size_t i = 0; x->chained && i < sizeof(links) / sizeof(links[0]); i++)
        check_link(x, x->v.where, links[i]);
}

static void check_cell(struct verify *x, size_t index)
{
    struct record_view *v = &x->v;
    json_t *cell = export_read_cell(&x->r, index, true);
    struct export_requests q;
    struct metrics_row *rows = NULL;
    char where[40];

    snprintf(where, sizeof(where), "/cells/%04zu", index);
    v->where = where;
    v->attributes = json_object_get(cell, "attributes");
    v->summary = json_object_get(cell, "summary");
    v->series = json_object_get(cell, "series");
    export_read_requests(&x->r, index, true, &q);
    if (q.n > 0)
        rows = make_rows(v, &q);
    x->n_requests += q.n;
    set_input(v, rows, q.n);
    for (size_t i = 0; record_rules[i]; i++)
        if (record_rules[i]->of_cell)
            record_rules[i]->of_cell(v);
    check_chain_of_cell(x);
    keep_for_later(v);
    mem_free((void *)v->in.slo.scale);
    mem_free((void *)v->in.energy_s);
    mem_free((void *)v->in.energy_joules);
    mem_free(rows);
    export_requests_free(&q);
    json_decref(cell);
}

static void check_file(struct verify *x)
{
    struct record_view *v = &x->v;

    v->where = "";
    v->attributes = v->summary = v->series = NULL;
    v->in = (struct metrics_input){.n_rows = 0};
    for (size_t i = 0; record_rules[i]; i++)
        if (record_rules[i]->of_file)
            record_rules[i]->of_file(v);
    if (!x->chained)
        return;
    check_link(x, "/", "headline");
    check_link(x, "/", "/");
}

/* The cache_size of the largest L3Cache in hwloc's XML, in which attributes have this order. */
static double largest_cache(const char *xml)
{
    double bytes = NAN;

    for (const char *at = xml; (at = strstr(at, "<object type=\"L3Cache\"")) != NULL;
         at++) {
        const char *size = strstr(at, " cache_size=\""), *end = strchr(at, '>');

        if (size && end && size < end)
            bytes = fmax(bytes, strtod(size + strlen(" cache_size=\""), NULL));
    }
    return bytes;
}

static void open_view(struct verify *x)
{
    char *xml = export_read_document(&x->r, "hwloc_xml"),
         *card = export_read_document(&x->r, "machine_card_json");
    json_t *read = NULL;

    if (card && json_read_own(&read, card, strlen(card), "machine_card_json") != OK)
        child_exit(err_prefix(ERR_FORMAT, "%s", x->r.path));
    x->chained = json_object_get(x->r.root, RECORD_CHAIN_ATTRIBUTE) != NULL;
    x->v = (struct record_view){.run = x->r.root,
                                .headline = x->r.headline,
                                .card = read,
                                .cache_bytes = xml ? largest_cache(xml) : NAN,
                                .n_cells = x->r.n_cells,
                                .seen = json_object(),
                                .trials = json_object(),
                                .faults = json_object()};
    mem_free(xml);
    mem_free(card);
}

static json_t *lines_of(const struct verify *x)
{
    json_t *lines = json_array(), *fault;
    const char *key;

    json_object_foreach(x->v.faults, key, fault)
    {
        const json_int_t more = json_int_at(fault, "n") - 1;
        json_t *line = json_sprintf("%s: %s", x->r.path, json_str_at(fault, "line", ""));

        if (more > 0) {
            json_t *longer = json_sprintf("%s (and %lld more)", json_string_value(line),
                                          (long long)more);
            json_decref(line);
            line = longer;
        }
        json_array_append_new(lines, line);
    }
    return lines;
}

struct task {
    const char *path;
    char *bytes; /* [n] of the file; NULL: they are in it */
    size_t n;
};

static int run_task(void *ctx, FILE *out)
{
    const struct task *t = ctx;
    struct verify x = {.chain = ""};
    json_t *answer;
    char *text;

    export_read(&x.r, t->path, t->bytes, t->n);
    open_view(&x);
    for (size_t i = 0; i < x.r.n_cells; i++)
        check_cell(&x, i);
    check_file(&x);
    answer =
        json_pack("{s:o s:b s:I s:I s:O s:O}", "faults", lines_of(&x), "chained",
                  x.chained, "n_cells", (json_int_t)x.r.n_cells, "n_requests",
                  (json_int_t)x.n_requests, "run", x.r.root, "headline", x.r.headline);
    text = json_text(answer, JSON_COMPACT);
    fputs(text, out);
    mem_free(text);
    return OK;
}

/* --- here */

static int run_child(json_t **out, struct task *t)
{
    const struct child child = {.fn = run_task,
                                .ctx = t,
                                .where = t->path,
                                .if_crash = "the file is damaged or not a result",
                                .foreign_bytes = t->n};
    char *text;
    size_t n;
    int rc;

    if (t->n == 0)
        return err_set(ERR_FORMAT, "%s: expected an HDF5 file, found nothing in it",
                       t->path);
    TRY(child_run(&child, &text, &n));
    rc = json_read_own(out, text, n, t->path);
    mem_free(text);
    return rc;
}

int export_verify(json_t **out, const char *path)
{
    const size_t n = strlen(path);
    struct task task = {.path = path};
    struct stat st;
    int rc;

    *out = NULL;
    if (stat(path, &st) != 0)
        return err_set(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open: %m",
                       path);
    if (!S_ISREG(st.st_mode))
        return err_set(ERR_FORMAT, "%s: expected an HDF5 file, found no regular file",
                       path);
    task.n = (size_t)st.st_size;
    if (n > 3 && strcmp(path + n - 3, RECORD_PACKED) == 0)
        TRY(export_unpack(&task.bytes, &task.n, path));
    rc = run_child(out, &task);
    mem_free(task.bytes);
    return rc;
}

void export_verify_docs(FILE *f)
{
    for (size_t i = 0; record_rules[i]; i++)
        fprintf(f, "  %-10s %s\n", record_rules[i]->name, record_rules[i]->text);
}
