#include "experiments/record/journal.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/utf8.h"
#include "experiments/record/fields.h"

#define VERSION 2 /* of the lines; another one is never resumed */

#define BEFORE_CRC "{\"crc\":\""
#define CRC_FORMAT BEFORE_CRC "%08x\","
#define N_CRC      (sizeof(BEFORE_CRC) - 1 + 8 + 2) /* bytes of it */

struct journal {
    int fd;
    char *path;
    int64_t size;      /* bytes of whole lines: what a failed write is cut back to */
    bool broken;       /* a write failed; nothing may follow */
    json_t *resume;    /* what the first line of this process says; NULL: nothing */
    json_t *finished;  /* key -> state */
    size_t n_attempts; /* finished cells, each attempt counted */
};

static unsigned crc(const char *text, size_t n)
{
    return (unsigned)crc32_z(0, (const Bytef *)text, n);
}

/* --- appending */

static int write_line(struct journal *j, const char *line, size_t n, bool sync)
{
    int rc = OK;

    if (j->broken)
        return err_set(ERR_STATE, "%s: not appended: an earlier write failed", j->path);
    if (file_write_all(j->fd, line, n) != 0) {
        rc = err_set(ERR_IO, "%s: cannot append: %m", j->path);
        /* Reopening would cut the torn line too; this only does it sooner. */
        if (ftruncate(j->fd, j->size) != 0)
            log_error("%s: cannot cut back to %lld bytes", j->path, (long long)j->size);
    } else if (sync && fsync(j->fd) != 0) {
        /* The kernel may have dropped the pages: what was appended cannot be trusted. */
        rc = err_set(ERR_IO, "%s: cannot sync: %m", j->path);
    }
    j->broken = rc != OK;
    if (rc == OK)
        j->size += (int64_t)n;
    return rc;
}

/* {"crc":...,"<kind>":value}; `value` is stolen. */
static int append(struct journal *j, const char *kind, json_t *value, bool sync)
{
    json_t *o = json_object();
    char *text, *line;
    size_t n;
    int rc;

    json_object_set_new(o, kind, value);
    text = json_text(o, JSON_COMPACT | JSON_SORT_KEYS);
    n = strlen(text) - 1; /* the CRC's member replaces its brace */
    line = mem_new(MEM_HARNESS, N_CRC + n + 2, 1);
    sprintf(line, CRC_FORMAT, crc(text + 1, n));
    memcpy(line + N_CRC, text + 1, n);
    line[N_CRC + n] = '\n';
    rc = write_line(j, line, N_CRC + n + 1, sync);
    mem_free(line);
    mem_free(text);
    json_decref(o);
    return rc;
}

/* --- a cell: what a record can hold
 *
 * This is found out before a cell is written and before a journal is resumed, not after the run. */

static int check_key(const char *key, const char *where)
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
    json_object_set_new_nocheck(seen, name, json_null());
    return OK;
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

static int check_cell(const struct record_cell *c, const char *where)
{
    int rc = check_key(c->key, where);

    if (rc == OK && !json_is_object(c->attributes))
        rc = err_set(ERR_ARG, "%s: cell %s: attributes must be an object", where, c->key);
    for (size_t i = 0; rc == OK && i < c->n_rows; i++)
        if (c->rows[i].n_tok < 0 || (c->rows[i].n_tok > 0 && !c->rows[i].token_ns))
            rc = err_set(ERR_ARG, "%s: cell %s: request %lld: %lld tokens without times",
                         where, c->key, (long long)c->rows[i].request,
                         (long long)c->rows[i].n_tok);
    return rc == OK ? check_names(c, where) : rc;
}

/* --- a cell: to JSON
 *
 * Numbers come back exactly: null is NaN or a time that never came, infinities are texts. */

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

    for (const struct record_column *c = record_columns; c->name; c++) {
        list = json_array();
        for (size_t i = 0; i < cell->n_rows; i++)
            json_array_append_new(list, member(c, &cell->rows[i]));
        json_object_set_new(o, c->name, list);
    }
    for (size_t i = 0; i < cell->n_rows; i++) {
        list = json_array();
        for (int64_t k = 0; k < cell->rows[i].n_tok; k++)
            json_array_append_new(list, json_integer(cell->rows[i].token_ns[k]));
        json_array_append_new(times, list);
    }
    json_object_set_new(o, "token_ns", times);
    return o;
}

/* Returns o with its kind of evidence, which may be NULL. */
static json_t *with_evidence(json_t *o, const char *kind)
{
    if (kind)
        json_object_set_new(o, "evidence", json_string(kind));
    return o;
}

static json_t *value_json(const struct metrics_value *v)
{
    json_t *o = json_pack("{s:o s:o s:o s:o}", "name", json_string_lossy(v->name), "unit",
                          json_string_lossy(v->unit), "value", number(v->value), "why",
                          json_string_lossy(v->why));

    if (v->has_interval) {
        json_object_set_new(o, "lo", number(v->lo));
        json_object_set_new(o, "hi", number(v->hi));
    }
    return with_evidence(o, v->evidence);
}

static json_t *cell_json(const struct record_cell *c)
{
    json_t *values = json_array(), *series = json_array();

    for (size_t i = 0; i < c->n_values; i++)
        json_array_append_new(values, value_json(&c->values[i]));
    for (size_t i = 0; i < c->n_series; i++) {
        const struct metrics_series *s = &c->series[i];
        json_t *list = json_array();

        for (size_t k = 0; k < s->n; k++)
            json_array_append_new(list, number(s->v[k]));
        json_array_append_new(
            series,
            with_evidence(json_pack("{s:o s:o s:o}", "name", json_string_lossy(s->name),
                                    "unit", json_string_lossy(s->unit), "v", list),
                          s->evidence));
    }
    return with_evidence(json_pack("{s:s s:s s:O s:o s:o s:o}", "key", c->key, "state",
                                   record_states[c->state], "attributes", c->attributes,
                                   "values", values, "series", series, "requests",
                                   c->n_rows ? requests_json(c) : json_null()),
                         c->evidence);
}

/* --- a cell: from JSON. The line's CRC was right: what does not fit is another version's. */

/* A cell read back, with the arrays that `cell` lends. */
struct parsed {
    const char *where; /* begins its error lines */
    struct record_cell cell;
    struct metrics_row *rows;
    int64_t *token_ns;
    struct metrics_value *values;
    struct metrics_series *series;
};

static bool read_number(const json_t *v, double *out)
{
    const char *text = json_string_value(v);

    *out = json_is_null(v) ? (double)NAN
           : text          ? strtod(text, NULL)
                           : json_number_value(v);
    return json_is_null(v) || text || json_is_number(v);
}

static bool read_text(const json_t *v, char *out, size_t n)
{
    const char *text = json_string_value(v);

    return text && (size_t)snprintf(out, n, "%s", text) < n;
}

/* Absent: NULL. */
static bool read_evidence(const json_t *o, const char **out)
{
    const json_t *v = json_object_get(o, "evidence");

    *out = metrics_evidence_find(json_string_value(v));
    return !v || *out;
}

static bool read_member(const struct record_column *c, const json_t *v,
                        struct metrics_row *row)
{
    void *p = (char *)row + c->offset;
    json_int_t i = json_integer_value(v);

    switch (c->kind) {
    case RECORD_COLUMN_I64:
        *(int64_t *)p = json_is_null(v) ? METRICS_NEVER : i;
        return json_is_null(v) || json_is_integer(v);
    case RECORD_COLUMN_F64:
        return read_number(v, p);
    case RECORD_COLUMN_BOOL:
        *(bool *)p = json_is_true(v);
        return json_is_boolean(v);
    case RECORD_COLUMN_STATUS:
        *(enum metrics_status *)p = (enum metrics_status)i;
        return json_is_integer(v) && i >= METRICS_OK && i <= METRICS_REJECTED;
    default:
        return read_text(v, p, sizeof(row->error));
    }
}

static bool read_times(struct parsed *p, const json_t *times)
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

static int bad(const struct parsed *p, const char *part)
{
    return err_set(ERR_FORMAT, "%s: cell %s: %s: not as this version writes it", p->where,
                   p->cell.key ? p->cell.key : "?", part);
}

static int read_requests(struct parsed *p, const json_t *o)
{
    const json_t *times = json_object_get(o, "token_ns");
    size_t n = json_array_size(times), n_tok = 0, i;
    json_t *list, *v;

    json_array_foreach((json_t *)times, i, list) n_tok += json_array_size(list);
    p->rows = mem_new(MEM_HARNESS, n, sizeof(*p->rows));
    p->token_ns = mem_new(MEM_HARNESS, n_tok, sizeof(*p->token_ns));
    p->cell.rows = p->rows;
    p->cell.n_rows = n;
    for (const struct record_column *c = record_columns; c->name; c++) {
        list = json_object_get(o, c->name);
        if (json_array_size(list) != n)
            return bad(p, c->name);
        json_array_foreach(list, i,
                           v) if (!read_member(c, v, &p->rows[i])) return bad(p, c->name);
    }
    return read_times(p, times) ? OK : bad(p, "token_ns");
}

static int read_values(struct parsed *p, const json_t *list)
{
    size_t i;
    json_t *o;

    p->values = mem_new(MEM_HARNESS, json_array_size(list), sizeof(*p->values));
    p->cell.values = p->values;
    json_array_foreach((json_t *)list, i, o)
    {
        struct metrics_value *v = &p->values[p->cell.n_values++];

        if (!read_text(json_object_get(o, "name"), v->name, sizeof(v->name)) ||
            !read_text(json_object_get(o, "unit"), v->unit, sizeof(v->unit)) ||
            !read_text(json_object_get(o, "why"), v->why, sizeof(v->why)) ||
            !read_evidence(o, &v->evidence) ||
            !read_number(json_object_get(o, "value"), &v->value))
            return bad(p, "values");
        v->has_interval = json_object_get(o, "lo");
        if (v->has_interval && (!read_number(json_object_get(o, "lo"), &v->lo) ||
                                !read_number(json_object_get(o, "hi"), &v->hi)))
            return bad(p, "values");
    }
    return OK;
}

static int read_series(struct parsed *p, const json_t *list)
{
    size_t i, k;
    json_t *o, *x;

    p->series = mem_new(MEM_HARNESS, json_array_size(list), sizeof(*p->series));
    p->cell.series = p->series;
    json_array_foreach((json_t *)list, i, o)
    {
        struct metrics_series *s = &p->series[p->cell.n_series++];
        const json_t *v = json_object_get(o, "v");

        if (!read_text(json_object_get(o, "name"), s->name, sizeof(s->name)) ||
            !read_text(json_object_get(o, "unit"), s->unit, sizeof(s->unit)) ||
            !read_evidence(o, &s->evidence))
            return bad(p, "series");
        s->n = json_array_size(v);
        s->v = mem_new(MEM_HARNESS, s->n, sizeof(*s->v));
        json_array_foreach((json_t *)v, k,
                           x) if (!read_number(x, &s->v[k])) return bad(p, s->name);
    }
    return OK;
}

/* `v` and `where`, the file, must outlive *out. parsed_fini() also after an error. ERR_FORMAT. */
static int parse_cell(struct parsed *out, const json_t *v, const char *where)
{
    struct record_cell *c = &out->cell;
    const char *state = json_str_at(v, "state", "");
    const int state_index = name_index(record_states, state);
    const json_t *requests = json_object_get(v, "requests");
    int rc = OK;

    *out = (struct parsed){.where = where};
    c->key = json_string_value(json_object_get(v, "key"));
    c->attributes = json_object_get(v, "attributes");
    if (!c->key || !json_is_object(c->attributes) || state_index < 0)
        return bad(out, "state");
    c->state = (enum record_state)state_index;
    if (!read_evidence(v, &c->evidence))
        return bad(out, "evidence");
    if (!json_is_null(requests))
        rc = read_requests(out, requests);
    if (rc == OK)
        rc = read_values(out, json_object_get(v, "values"));
    if (rc == OK)
        rc = read_series(out, json_object_get(v, "series"));
    if (rc == OK)
        rc = check_cell(c, where);
    return rc == ERR_ARG ? ERR_FORMAT : rc;
}

static void parsed_fini(struct parsed *p)
{
    for (size_t i = 0; i < p->cell.n_series; i++)
        mem_free(p->series[i].v);
    mem_free(p->rows);
    mem_free(p->token_ns);
    mem_free(p->values);
    mem_free(p->series);
    *p = (struct parsed){0};
}

/* --- reading */

/* A line, and a newline behind it, whose CRC is right. */
static bool is_whole(const char *line, size_t n)
{
    char want[N_CRC + 1];

    if (n < N_CRC + 2 || line[n - 1] != '\n')
        return false;
    sprintf(want, CRC_FORMAT, crc(line + N_CRC, n - 1 - N_CRC));
    return memcmp(line, want, N_CRC) == 0;
}

/* Where the whole lines end, and whether more than a line cut short follows. */
struct extent {
    int64_t end;
    bool damaged;
};
typedef int (*line_fn)(void *ctx, const char *kind, const json_t *value);

static int take_line(const char *path, const char *line, size_t n, line_fn fn, void *ctx)
{
    json_t *o, *v;
    const char *kind;
    int rc = json_read_own(&o, line, n, path);

    if (rc != OK)
        return rc;
    json_object_foreach(o, kind, v) if (rc == OK && strcmp(kind, "crc") != 0) rc =
        fn(ctx, kind, v);
    json_decref(o);
    return rc;
}

static int walk(const char *path, line_fn fn, void *ctx, struct extent *extent)
{
    size_t cap = 0, n_start = strlen(BEFORE_CRC);
    char *line = NULL;
    ssize_t n;
    FILE *f;
    int rc = file_stream(&f, path);

    *extent = (struct extent){0};
    if (rc != OK)
        return rc;
    while (rc == OK && (n = getline(&line, &cap, f)) > 0) {
        if (!is_whole(line, (size_t)n)) {
            size_t shown = (size_t)n < n_start ? (size_t)n : n_start;

            extent->damaged = line[n - 1] == '\n' || memcmp(line, BEFORE_CRC, shown) != 0;
            break;
        }
        rc = take_line(path, line, (size_t)n, fn, ctx);
        extent->end += n;
    }
    if (rc == OK && (ferror(f) || (n < 0 && !feof(f))))
        rc = err_set(ERR_IO, "%s: cannot read: %m", path);
    free(line);
    fclose(f);
    return rc;
}

struct reader {
    const char *path;
    journal_cell_fn fn;
    void *ctx;
    json_t *header, *resumes;
    size_t n_interrupted;
    bool begun;
};

static int read_line(void *ctx, const char *kind, const json_t *value)
{
    struct reader *r = ctx;
    struct parsed p;
    int rc;

    if (!r->header) {
        r->header = json_incref((json_t *)value);
        return strcmp(kind, "header") == 0
                   ? OK
                   : err_set(ERR_FORMAT, "%s: offset 0: expected a journal's header",
                             r->path);
    }
    if (strcmp(kind, "note") == 0) {
        json_object_update(r->header, (json_t *)value);
        return OK;
    }
    if (strcmp(kind, "cell") != 0) {
        r->n_interrupted += r->begun;
        r->begun = strcmp(kind, "begin") == 0;
        if (!r->begun)
            json_array_append(r->resumes, (json_t *)value);
        return OK;
    }
    r->begun = false;
    if (!r->fn)
        return OK;
    rc = parse_cell(&p, value, r->path);
    if (rc == OK)
        rc = r->fn(r->ctx, &p.cell);
    parsed_fini(&p);
    return rc;
}

int journal_read(const char *path, journal_cell_fn fn, void *ctx, json_t **header,
                 size_t *n_interrupted)
{
    struct reader r = {.path = path, .fn = fn, .ctx = ctx, .resumes = json_array()};
    struct extent extent;
    int rc = walk(path, read_line, &r, &extent);

    if (header)
        *header = NULL;
    if (rc == OK && !r.header)
        rc = err_set(ERR_FORMAT, "%s: offset 0: expected a journal's header", path);
    if (rc == OK && json_array_size(r.resumes) > 0)
        json_object_set(r.header, "resumes", r.resumes);
    if (rc == OK && n_interrupted)
        *n_interrupted = r.n_interrupted + r.begun;
    if (rc == OK && header)
        *header = json_incref(r.header);
    json_decref(r.resumes);
    json_decref(r.header);
    return rc;
}

/* --- the header */

static int check_header(const json_t *header, const char *where)
{
    const char *text;
    const json_t *object;
    int rc;

    if ((rc = json_get_str(header, "experiment", &text, where)) != OK ||
        (rc = json_get_str(header, "utc", &text, where)) != OK ||
        (rc = json_get_obj(header, "job", &object, where)) != OK ||
        (rc = json_get_obj(header, "provenance", &object, where)) != OK ||
        (rc = json_get_str(header, "evidence", &text, where)) != OK)
        return ERR_ARG;
    if (name_index(metrics_evidence, text) >= 0)
        return OK;
    return name_unknown(ERR_ARG, text, metrics_evidence,
                        "%s: evidence: \"%s\" is not a kind of evidence", where, text);
}

/* Runs that may share a journal: same experiment, same job, same code, same host. */
static bool same_run(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"journal_version", "experiment", "job",
                                       "provenance", "host"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (x != y && !json_equal(x, y))
            return false;
    }
    return true;
}

/* --- an existing file */

struct scan {
    struct journal *j;
    const json_t *header;
    json_t *old; /* the header found; NULL: none */
    bool same;
};

static void note_finished(struct journal *j, const char *key, enum record_state state)
{
    j->n_attempts++;
    json_object_set_new(j->finished, key, json_integer(state));
}

static int scan_line(void *ctx, const char *kind, const json_t *value)
{
    struct scan *s = ctx;
    struct parsed p;
    int rc;

    if (!s->old) {
        s->old = json_incref((json_t *)value);
        s->same = strcmp(kind, "header") == 0 && same_run(s->header, value) &&
                  check_header(value, s->j->path) == OK;
    } else if (s->same && strcmp(kind, "cell") == 0) {
        /* All of it: what no record could hold is refused now, not after the run. */
        rc = parse_cell(&p, value, s->j->path);
        if (rc == OK)
            note_finished(s->j, p.cell.key, p.cell.state);
        else
            rc = err_set(rc, "%s (--fresh begins again)", err_msg());
        parsed_fini(&p);
        return rc;
    }
    return OK;
}

/* Keep another run's journal under a name that says when that run began. */
static int set_aside(const struct journal *j, const json_t *old)
{
    const char *utc = json_string_value(json_object_get(old, "utc"));
    size_t n = strlen(j->path) + 64;
    char *name = mem_new(MEM_HARNESS, n, 1), *end;
    int rc = OK;

    snprintf(name, n, "%s.%.40s", j->path, utc ? utc : "unreadable");
    for (char *c = name + strlen(j->path); *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(".-:", *c))
            *c = '_';
    end = name + strlen(name);
    for (int i = 2; access(name, F_OK) == 0; i++)
        snprintf(end, n - (size_t)(end - name), ".%d", i);
    if (rename(j->path, name) != 0)
        rc = err_set(ERR_IO, "%s: cannot rename to %s: %m", j->path, name);
    else
        log_warning("journal_set_aside", 1, 0,
                    "an unfinished journal of another job, code or host is now %s", name);
    mem_free(name);
    return rc;
}

/* --- opening */

static int begin(struct journal *j, const json_t *header, const char *dir)
{
    int rc;

    if (ftruncate(j->fd, 0) != 0)
        return err_set(ERR_IO, "%s: cannot cut to 0 bytes: %m", j->path);
    j->size = 0;
    rc = append(j, "header", json_incref((json_t *)header), true);
    return rc == OK ? file_sync_dir(dir) : rc;
}

static int resume(struct journal *j, const json_t *header, bool damaged)
{
    if (ftruncate(j->fd, j->size) != 0)
        return err_set(ERR_IO, "%s: cannot cut to %lld bytes: %m", j->path,
                       (long long)j->size);
    if (damaged)
        log_warning(
            "journal_damaged", (double)j->size, 0,
            "%s: damaged at byte %lld: cells recorded after it are measured again",
            j->path, (long long)j->size);
    j->resume = json_pack("{sO sO*}", "utc", json_object_get(header, "utc"),
                          "environment", json_object_get(header, "environment"));
    log_info("%s: resumed, %zu finished cells", j->path, journal_n_finished(j));
    return OK;
}

/* Take up what the locked file holds. *again: it was renamed aside; open a new one. */
static int take_up(struct journal *j, const json_t *header, const char *dir, bool *again)
{
    struct scan s = {.j = j, .header = header};
    struct extent extent;
    int rc = walk(j->path, scan_line, &s, &extent);

    j->size = extent.end;
    if (rc == OK && !s.old && !extent.damaged && extent.end == 0)
        rc = begin(j, header, dir); /* empty, or killed while the header was written */
    else if (rc == OK && s.same)
        rc = resume(j, header, extent.damaged);
    else if (rc == OK)
        rc = set_aside(j, s.old), *again = true;
    json_decref(s.old);
    return rc;
}

/* *again: the file was renamed or removed before it was locked. */
static int lock_file(struct journal *j, bool *again)
{
    struct stat here, there;
    int rc;

    j->fd = open(j->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (j->fd < 0)
        return err_set(ERR_IO, "%s: cannot open: %m", j->path);
    rc = file_lock(j->fd, j->path, false);
    if (rc != OK)
        return rc;
    *again = fstat(j->fd, &here) != 0 || stat(j->path, &there) != 0 ||
             here.st_ino != there.st_ino || here.st_dev != there.st_dev;
    return OK;
}

static int adopt(struct journal *j, const json_t *header, const char *dir, bool fresh)
{
    bool again;
    int rc;

    do {
        if (j->fd >= 0)
            close(j->fd);
        again = false;
        rc = lock_file(j, &again);
        if (rc == OK && !again)
            rc = fresh ? begin(j, header, dir) : take_up(j, header, dir, &again);
    } while (rc == OK && again);
    return rc;
}

int journal_open(struct journal **out, const char *dir, const char *stem,
                 const json_t *header, bool fresh)
{
    size_t n = strlen(dir) + strlen(stem) + 16;
    struct journal *j;
    json_t *full;
    int rc;

    *out = NULL;
    TRY(check_header(header, stem));
    TRY(file_make_dirs(dir));
    j = mem_new(MEM_HARNESS, 1, sizeof(*j));
    j->fd = -1;
    j->path = mem_new(MEM_HARNESS, n, 1);
    j->finished = json_object();
    full = json_object(); /* json_copy() would drop members without a word */
    json_object_update(full, (json_t *)header);
    json_object_set_new(full, "journal_version", json_integer(VERSION));
    snprintf(j->path, n, "%s/%s.journal", dir, stem);
    rc = adopt(j, full, dir, fresh);
    if (rc == OK)
        *out = j, j = NULL;
    json_decref(full);
    journal_close(&j);
    return rc;
}

void journal_close(struct journal **jp)
{
    struct journal *j = *jp;

    if (!j)
        return;
    if (j->fd >= 0)
        close(j->fd); /* and with it the lock */
    json_decref(j->resume);
    json_decref(j->finished);
    mem_free(j->path);
    mem_free(j);
    *jp = NULL;
}

bool journal_finished(const struct journal *j, const char *key, enum record_state *state)
{
    const json_t *v = json_object_get(j->finished, key);

    if (v && state)
        *state = (enum record_state)json_integer_value(v);
    return v != NULL;
}

size_t journal_n_finished(const struct journal *j)
{
    return json_object_size(j->finished);
}

size_t journal_n_attempts(const struct journal *j)
{
    return j->n_attempts;
}

bool journal_has_failed(const struct journal *j)
{
    const char *key;
    json_t *v;

    json_object_foreach(j->finished, key, v)
    {
        if (json_integer_value(v) == RECORD_FAILED)
            return true;
    }
    return false;
}

int journal_remove(struct journal **j)
{
    if (unlink((*j)->path) != 0)
        return err_set(ERR_IO, "%s: cannot remove: %m", (*j)->path);
    journal_close(j);
    return OK;
}

const char *journal_path(const struct journal *j)
{
    return j->path;
}

/* --- cells */

/* Only a run that measures more was resumed: one that was killed after its record was
 * renamed makes the same record again, byte for byte, and finds it there. */
static int note_resume(struct journal *j)
{
    if (!j->resume)
        return OK;
    TRY(append(j, "resume", json_incref(j->resume), true));
    json_decref(j->resume);
    j->resume = NULL;
    return OK;
}

int journal_begin(struct journal *j, const char *key)
{
    TRY(check_key(key, j->path));
    TRY(note_resume(j));
    return append(j, "begin", json_string(key), false);
}

int journal_note(struct journal *j, json_t *note)
{
    return append(j, "note", note, true);
}

int journal_cell(struct journal *j, const struct record_cell *c)
{
    TRY(check_cell(c, j->path));
    TRY(note_resume(j));
    TRY(append(j, "cell", cell_json(c), true));
    note_finished(j, c->key, c->state);
    return OK;
}
