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
#define REPEATS_MAX   64

enum column {
    MODEL,
    HARDWARE,
    PROMPT,
    BATCH,
    OUTPUT,
    PROMPT_MS,
    TOKEN_MS,
    POWER,
    TP,
    N_COLUMNS
};
static const char *const column_names[N_COLUMNS] = {
    "model",       "hardware",   "prompt_size",   "batch_size",     "token_size",
    "prompt_time", "token_time", "average_power", "tensor_parallel"};

struct repeats {
    int n;
    double prompt_ms[REPEATS_MAX], token_ms[REPEATS_MAX], power[REPEATS_MAX];
};

struct table {
    const char *path;
    int64_t line;
    int at[N_COLUMNS]; /* field of each column */
    int n_fields;
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
        t->at[c] = -1;
        for (int i = 0; i < t->n_fields; i++)
            if (strcmp(fields[i], column_names[c]) == 0)
                t->at[c] = i;
        if (t->at[c] < 0)
            return err_set(ERR_FORMAT, "%s:1: expected a column \"%s\", found none",
                           t->path, column_names[c]);
    }
    return OK;
}

static int read_number(double *out, const struct table *t, char **fields, enum column c)
{
    const char *text = fields[t->at[c]];
    char *end;

    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out) || *out < 0)
        return err_set(ERR_FORMAT,
                       "%s:%" PRId64
                       ": %s: expected a number of at least 0, found \"%s\"",
                       t->path, t->line, column_names[c], text);
    return OK;
}

static int add_row(const struct table *t, char **fields, struct cluster_point *out,
                   struct repeats *reps, int *n, int max)
{
    double v[N_COLUMNS];
    struct cluster_point p;
    int i = 0;

    for (int c = PROMPT; c <= POWER; c++)
        TRY(read_number(&v[c], t, fields, (enum column)c));
    p = (struct cluster_point){.prompt_tok = (int64_t)v[PROMPT],
                               .batch = (int64_t)v[BATCH],
                               .output_tok = (int64_t)v[OUTPUT]};
    while (i < *n && (out[i].prompt_tok != p.prompt_tok || out[i].batch != p.batch ||
                      out[i].output_tok != p.output_tok))
        i++;
    if (i == max)
        return err_set(ERR_LIMIT, "%s: more than %d distinct points", t->path, max);
    if (i == *n) {
        out[(*n)++] = p;
        reps[i].n = 0;
    }
    if (reps[i].n == REPEATS_MAX)
        return err_set(ERR_LIMIT, "%s:%" PRId64 ": more than %d repeats of a point",
                       t->path, t->line, REPEATS_MAX);
    reps[i].prompt_ms[reps[i].n] = v[PROMPT_MS];
    reps[i].token_ms[reps[i].n] = v[TOKEN_MS];
    reps[i].power[reps[i].n++] = v[POWER];
    return OK;
}

static int read_rows(struct table *t, char *text, struct cluster_point *out,
                     struct repeats *reps, int *n, int max, const char *model,
                     const char *hardware, int64_t tensor_parallel)
{
    char *fields[FIELDS_MAX], *save = NULL;
    char *line = strtok_r(text, "\n", &save);
    double tp;

    if (!line)
        return err_set(ERR_FORMAT, "%s: expected a header line, found nothing", t->path);
    TRY(read_header(t, line));
    for (t->line = 2; (line = strtok_r(NULL, "\n", &save)) != NULL; t->line++) {
        int n_fields = split(line, fields, FIELDS_MAX);

        if (n_fields != t->n_fields)
            return err_set(ERR_FORMAT, "%s:%" PRId64 ": expected %d fields, found %d",
                           t->path, t->line, t->n_fields, n_fields);
        TRY(read_number(&tp, t, fields, TP));
        if (strcmp(fields[t->at[MODEL]], model) == 0 &&
            strcmp(fields[t->at[HARDWARE]], hardware) == 0 &&
            (int64_t)tp == tensor_parallel)
            TRY(add_row(t, fields, out, reps, n, max));
    }
    if (*n == 0)
        return err_set(ERR_NOTFOUND,
                       "%s: no row of model %s, hardware %s, tensor_parallel %" PRId64,
                       t->path, model, hardware, tensor_parallel);
    return OK;
}

int cluster_points_read(struct cluster_point *out, int *n, int max, const char *path,
                        const char *model, const char *hardware, int64_t tensor_parallel)
{
    struct table t = {.path = path};
    struct repeats *reps = NULL;
    char *bytes = NULL, *text = NULL;
    size_t size;
    int rc;

    *n = 0;
    rc = file_read(&bytes, &size, path, CSV_BYTES_MAX);
    if (rc != OK)
        goto out;
    text = mem_strndup(MEM_OTHER, bytes, size);
    reps = mem_new(MEM_OTHER, (size_t)max, sizeof(*reps));
    rc = text && reps
             ? read_rows(&t, text, out, reps, n, max, model, hardware, tensor_parallel)
             : ERR_NOMEM;
    for (int i = 0; rc == OK && i < *n; i++) {
        size_t k = (size_t)reps[i].n;
        double power = stats_median(reps[i].power, k);

        out[i].prompt_ms = stats_median(reps[i].prompt_ms, k);
        out[i].token_ms = stats_median(reps[i].token_ms, k);
        out[i].power = power > 0 ? power : NAN;
    }
out:
    mem_free(reps);
    mem_free(text);
    mem_free(bytes);
    return rc;
}
