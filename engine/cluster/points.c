/* The measured points of a CSV, repeats joined by their median. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/stats.h"
#include "cluster/perf.h"

#define CSV_BYTES_MAX (64 << 20)

enum column {
    PROMPT,
    BATCH,
    OUTPUT,
    PROMPT_MS,
    TOKEN_MS,
    POWER,
    POWER_MOST,
    E2E_MS,
    N_NUMBERS,
    MODEL = N_NUMBERS,
    HARDWARE,
    TP,
    N_COLUMNS
};
static const char *const column_names[N_COLUMNS] = {
    "prompt_size", "batch_size",    "token_size",     "prompt_time",
    "token_time",  "average_power", "peak_power",     "e2e_time",
    "model",       "hardware",      "tensor_parallel"};

struct table {
    const char *path, *model, *hardware;
    int64_t tensor_parallel;
    int64_t line;
    int at[N_COLUMNS]; /* field of each column; -1: the file does not have it */
    int n_fields;
    struct cluster_point *rows;
    int n, max;
};

/* Cut a line into fields, in place. */
static int split(char *line, char **fields, int max)
{
    int n = 0;
    char *rest = line;

    line[strcspn(line, "\r\n")] = '\0';
    while (rest && n < max) {
        fields[n++] = rest;
        rest = strchr(rest, ',');
        if (rest)
            *rest++ = '\0';
    }
    return rest ? max + 1 : n;
}

#define FIELDS_MAX 64
static int read_header(struct table *t, char *line)
{
    char *fields[FIELDS_MAX];

    t->n_fields = split(line, fields, FIELDS_MAX);
    if (t->n_fields > FIELDS_MAX)
        return err_set(ERR_LIMIT, "%s:1: more than %d columns", t->path, FIELDS_MAX);
    for (int c = 0; c < N_COLUMNS; c++) {
        bool needed = (c == MODEL && t->model) || (c == HARDWARE && t->hardware) ||
                      (c == TP && t->tensor_parallel) || c <= TOKEN_MS;

        t->at[c] = -1;
        for (int i = 0; i < t->n_fields; i++)
            if (strcmp(fields[i], column_names[c]) == 0)
                t->at[c] = i;
        if (needed && t->at[c] < 0)
            return err_set(ERR_FORMAT, "%s:1: expected a column \"%s\", found none",
                           t->path, column_names[c]);
    }
    return OK;
}

/* NaN: the file does not have it, or it is empty where it may be missing. */
static int read_number(double *out, const struct table *t, char **fields, enum column c)
{
    const char *text = t->at[c] < 0 ? "" : fields[t->at[c]];
    char *end;

    *out = NAN;
    if (!*text && c >= PROMPT_MS && c < N_NUMBERS)
        return OK;
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out) || *out < 0)
        return err_set(ERR_FORMAT,
                       "%s:%" PRId64
                       ": %s: expected a number of at least 0, found \"%s\"",
                       t->path, t->line, column_names[c], text);
    return OK;
}

static int add_row(struct table *t, char **fields)
{
    double v[N_NUMBERS];

    for (int c = 0; c < N_NUMBERS; c++)
        TRY(read_number(&v[c], t, fields, (enum column)c));
    if (t->n == t->max) {
        t->max = t->max ? 2 * t->max : 128;
        t->rows = mem_resize(MEM_OTHER, t->rows, (size_t)t->max, sizeof(*t->rows));
    }
    t->rows[t->n++] =
        (struct cluster_point){.prompt_tok = (int64_t)v[PROMPT],
                               .batch = (int64_t)v[BATCH],
                               .output_tok = (int64_t)v[OUTPUT],
                               .prompt_ms = v[PROMPT_MS],
                               .token_ms = v[TOKEN_MS],
                               .power = v[POWER] > 0 ? v[POWER] : NAN,
                               .power_most = v[POWER_MOST] > 0 ? v[POWER_MOST] : NAN,
                               .e2e_ms = v[E2E_MS]};
    return OK;
}

static bool is_wanted(const struct table *t, char **fields, double tensor_parallel)
{
    return (!t->model || strcmp(fields[t->at[MODEL]], t->model) == 0) &&
           (!t->hardware || strcmp(fields[t->at[HARDWARE]], t->hardware) == 0) &&
           (!t->tensor_parallel || (int64_t)tensor_parallel == t->tensor_parallel);
}

static int read_rows(struct table *t, char *text)
{
    char *fields[FIELDS_MAX], *save = NULL;
    char *line = strtok_r(text, "\n", &save);
    double tp = 0;

    if (!line)
        return err_set(ERR_FORMAT, "%s: expected a header line, found nothing", t->path);
    TRY(read_header(t, line));
    for (t->line = 2; (line = strtok_r(NULL, "\n", &save)) != NULL; t->line++) {
        int n_fields = split(line, fields, FIELDS_MAX);

        if (n_fields != t->n_fields)
            return err_set(ERR_FORMAT, "%s:%" PRId64 ": expected %d fields, found %d",
                           t->path, t->line, t->n_fields, n_fields);
        if (t->tensor_parallel)
            TRY(read_number(&tp, t, fields, TP));
        if (is_wanted(t, fields, tp))
            TRY(add_row(t, fields));
    }
    return t->n > 0
               ? OK
               : err_set(ERR_NOTFOUND,
                         "%s: no row of model %s, hardware %s, tensor_parallel %" PRId64,
                         t->path, t->model ? t->model : "any",
                         t->hardware ? t->hardware : "any", t->tensor_parallel);
}

int cluster_rows_read(struct cluster_point **out, int *n, const char *path,
                      const char *model, const char *hardware, int64_t tensor_parallel)
{
    struct table t = {.path = path,
                      .model = model,
                      .hardware = hardware,
                      .tensor_parallel = tensor_parallel};
    char *bytes = NULL, *text;
    size_t size;
    int rc;

    *out = NULL;
    *n = 0;
    TRY(file_read(&bytes, &size, path, CSV_BYTES_MAX));
    text = mem_strndup(MEM_OTHER, bytes, size);
    rc = read_rows(&t, text);
    if (rc == OK) {
        *out = t.rows;
        *n = t.n;
        t.rows = NULL;
    }
    mem_free(t.rows);
    mem_free(text);
    mem_free(bytes);
    return rc;
}

static bool is_same(const struct cluster_point *a, const struct cluster_point *b)
{
    return a->prompt_tok == b->prompt_tok && a->batch == b->batch &&
           a->output_tok == b->output_tok;
}

/* The median over all points of i's setting of the number at `offset`, where it is known. */
static double known_median(const struct cluster_point *p, int n, int i, size_t offset,
                           double *scratch)
{
    size_t k = 0;

    for (int j = i; j < n; j++) {
        double v = *(const double *)((const char *)&p[j] + offset);

        if (is_same(&p[i], &p[j]) && !isnan(v))
            scratch[k++] = v;
    }
    return stats_median(scratch, k);
}

void cluster_points_join(struct cluster_point *points, int *n)
{
    static const size_t numbers[] = {offsetof(struct cluster_point, prompt_ms),
                                     offsetof(struct cluster_point, token_ms),
                                     offsetof(struct cluster_point, power),
                                     offsetof(struct cluster_point, power_most),
                                     offsetof(struct cluster_point, e2e_ms)};
    double *scratch = mem_new(MEM_OTHER, (size_t)*n, sizeof(*scratch));
    int n_joined = 0;

    for (int i = 0; i < *n; i++) {
        struct cluster_point joined = points[i];
        int k = 0;

        while (k < n_joined && !is_same(&points[k], &points[i]))
            k++;
        if (k < n_joined)
            continue;
        for (size_t c = 0; c < sizeof(numbers) / sizeof(numbers[0]); c++)
            *(double *)((char *)&joined + numbers[c]) =
                known_median(points, *n, i, numbers[c], scratch);
        points[n_joined++] = joined;
    }
    *n = n_joined;
    mem_free(scratch);
}

int cluster_points_read(struct cluster_point *out, int *n, int max, const char *path,
                        const char *model, const char *hardware, int64_t tensor_parallel)
{
    struct cluster_point *rows;
    int rc = OK;

    TRY(cluster_rows_read(&rows, n, path, model, hardware, tensor_parallel));
    cluster_points_join(rows, n);
    if (*n > max)
        rc = err_set(ERR_LIMIT, "%s: %d distinct points, more than %d", path, *n, max);
    for (int i = 0; rc == OK && i < *n; i++)
        out[i] = rows[i];
    mem_free(rows);
    return rc;
}
