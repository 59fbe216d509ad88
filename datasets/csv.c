#include "datasets/csv.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "datasets/build.h"

bool dataset_is_one_of(const char *words, const char *name, bool any_case)
{
    size_t n = strlen(name);

    for (const char *w = words; w && *w; w += *w == '|') {
        size_t len = strcspn(w, "|");

        if (len == n && (any_case ? strncasecmp : strncmp)(w, name, n) == 0)
            return true;
        w += len;
    }
    return false;
}

/* Cut one field off *rest in place. NULL: a quote that does not close, or text after it.
 */
static char *cut_field(char **rest)
{
    char *from = *rest, *to = from, *field = from;

    if (*from != '"') {
        *rest = from + strcspn(from, ",");
        return field;
    }
    for (from++; *from && (from[0] != '"' || from[1] == '"'); from++) {
        from += from[0] == '"'; /* "" inside quotes is one quote */
        *to++ = *from;
    }
    if (from[0] != '"' || (from[1] != ',' && from[1] != '\0'))
        return NULL;
    *to = '\0';
    *rest = from + 1;
    return field;
}

static int split(char *line, char **fields, int *n, const char *where)
{
    *n = 0;
    for (;;) {
        char *field;
        int last;

        if (*n == DATASET_CSV_COLUMNS)
            return err_set(ERR_LIMIT, "%s: expected at most %d fields, found more", where,
                           DATASET_CSV_COLUMNS);
        field = cut_field(&line);
        if (!field)
            return err_set(ERR_FORMAT, "%s: field %d: expected a closing '\"' before ','",
                           where, *n + 1);
        fields[(*n)++] = field;
        last = *line == '\0';
        *line++ = '\0';
        if (last)
            return OK;
    }
}

static int next_line(struct dataset_csv *t, char **line, size_t *n)
{
    int rc = dataset_input_line(t->in, line, n);

    if (rc == OK && *line && memchr(*line, '\0', *n))
        return err_set(ERR_FORMAT, "%s: expected text, found a NUL byte",
                       dataset_input_where(t->in));
    return rc;
}

static char *trim(char *s)
{
    size_t n;

    while (isspace((unsigned char)*s))
        s++;
    for (n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]); n--)
        s[n - 1] = '\0';
    return s;
}

/* Without a header: two counts a line, of a prompt and an output. */
static void name_two_lengths(struct dataset_csv *t)
{
    static char prompt[] = "prompt", output[] = "output";

    if (t->n_columns != 2 || !isdigit((unsigned char)*t->names[0]) ||
        !isdigit((unsigned char)*t->names[1]))
        return;
    memcpy(t->fields, t->names, 2 * sizeof(*t->names));
    t->names[0] = prompt;
    t->names[1] = output;
    t->first_is_row = true;
}

int dataset_csv_init(struct dataset_csv *t, const char *path)
{
    char *line;
    size_t n;
    int rc;

    memset(t, 0, sizeof(*t));
    rc = dataset_input_open(&t->in, path);
    if (rc != OK)
        goto out;
    rc = next_line(t, &line, &n);
    if (rc != OK)
        goto out;
    if (!line) {
        rc = err_set(ERR_FORMAT, "%s: expected a header line, found an empty file",
                     dataset_input_where(t->in));
        goto out;
    }
    t->header = mem_strndup(MEM_DATASET, line, n);
    if (!t->header) {
        rc = ERR_NOMEM;
        goto out;
    }
    rc = split(t->header, t->names, &t->n_columns, dataset_input_where(t->in));
    for (int i = 0; rc == OK && i < t->n_columns; i++)
        t->names[i] = trim(t->names[i]);
    if (rc == OK)
        name_two_lengths(t);
out:
    if (rc != OK)
        dataset_csv_fini(t);
    return rc;
}

void dataset_csv_fini(struct dataset_csv *t)
{
    dataset_input_close(&t->in);
    mem_free(t->header);
    t->header = NULL;
}

/* Index of the first column named in `aliases` (words joined by '|').
 * required: ERR_FORMAT naming them if none is there; otherwise *column = -1. */
static int find_column(const struct dataset_csv *t, const char *aliases, int required,
                       int *column)
{
    char found[256] = "";

    *column = -1;
    for (int i = 0; i < t->n_columns; i++) {
        if (dataset_is_one_of(aliases, t->names[i], true)) {
            *column = i;
            return OK;
        }
        if (strlen(found) + strlen(t->names[i]) + 2 < sizeof(found)) {
            strcat(found, i ? "," : "");
            strcat(found, t->names[i]);
        }
    }
    if (!required)
        return OK;
    return err_set(ERR_FORMAT, "%s: expected a column %s, found \"%s\"",
                   dataset_input_where(t->in), aliases, found);
}

/* The next row that is not empty; *more = 0 after the last. */
static int next_row(struct dataset_csv *t, int *more)
{
    char *line;
    size_t n;
    int n_fields, rc;

    *more = t->first_is_row;
    t->first_is_row = false;
    if (*more)
        return OK;
    do {
        rc = next_line(t, &line, &n);
        if (rc != OK || !line)
            return rc;
    } while (n == 0);
    rc = split(line, t->fields, &n_fields, dataset_input_where(t->in));
    if (rc != OK)
        return rc;
    if (n_fields != t->n_columns)
        return err_set(ERR_FORMAT, "%s: expected %d fields as in the header, found %d",
                       dataset_input_where(t->in), t->n_columns, n_fields);
    for (int i = 0; i < n_fields; i++)
        t->fields[i] = trim(t->fields[i]);
    *more = 1;
    return OK;
}

int dataset_csv_refuse(const struct dataset_csv *t, int column, const char *expected)
{
    return err_set(ERR_FORMAT, "%s: %s: expected %s, found \"%.40s\"",
                   dataset_input_where(t->in), t->names[column], expected,
                   t->fields[column]);
}

/* The field of the present row as a count in [0, max]; "374.0", as data frames write
 * whole numbers, is 374. */
static int count(const struct dataset_csv *t, int column, int64_t max, int64_t *out)
{
    const char *s = t->fields[column];
    int64_t v = 0;
    char expected[64];

    snprintf(expected, sizeof(expected), "a whole number in [0, %lld]", (long long)max);
    if (!isdigit((unsigned char)*s))
        return dataset_csv_refuse(t, column, expected);
    for (; isdigit((unsigned char)*s); s++) {
        v = 10 * v + (*s - '0');
        if (v > max)
            return dataset_csv_refuse(t, column, expected);
    }
    if (*s == '.')
        s += 1 + strspn(s + 1, "0");
    if (*s)
        return dataset_csv_refuse(t, column, expected);
    *out = v;
    return OK;
}

/* As a finite decimal number. */
static int number(const struct dataset_csv *t, int column, double *out)
{
    const char *s = t->fields[column];
    char *end;
    double v;

    /* strtod also reads "inf", "0x1p3" and leading spaces: no trace writes those */
    if (!*s || s[strspn(s, "0123456789+-.eE")])
        return dataset_csv_refuse(t, column, "a decimal number");
    v = strtod(s, &end);
    if (*end || !isfinite(v))
        return dataset_csv_refuse(t, column, "a decimal number");
    *out = v;
    return OK;
}

/* ---- the requests of a trace ---- */

#define MAX_S 4e9 /* differences in nanoseconds fit 64 bits; 127 years */

struct columns {
    const struct dataset_csv_form *form;
    int prompt, output, arrival;
};

static int find_columns(const struct dataset_csv *t, struct columns *c)
{
    int rc = OK;

    c->arrival = -1;
    if (c->form->arrival)
        rc = find_column(t, c->form->arrival, c->form->needs_arrival, &c->arrival);
    if (rc == OK)
        rc = find_column(t, c->form->prompt, 1, &c->prompt);
    if (rc == OK)
        rc = find_column(t, c->form->output, 1, &c->output);
    return rc;
}

static int seconds_ns(const struct dataset_csv *t, int column, int64_t *ns)
{
    double s = 0;
    int rc = number(t, column, &s);

    if (rc == OK && !(fabs(s) <= MAX_S))
        rc = dataset_csv_refuse(t, column, "a time of at most 4e9 seconds");
    if (rc == OK)
        *ns = (int64_t)(s * 1e9);
    return rc;
}

static int read_row(struct dataset *d, const struct dataset_csv *t,
                    const struct columns *c, bool *full)
{
    struct dataset_item it = {.arrival_s = NAN};
    int64_t ns = 0;

    if (c->arrival >= 0)
        TRY((c->form->time_ns ? c->form->time_ns : seconds_ns)(t, c->arrival, &ns));
    TRY(count(t, c->prompt, DATASET_MAX_TOK, &it.n_prompt));
    TRY(count(t, c->output, DATASET_MAX_TOK, &it.n_output));
    return c->arrival >= 0
               ? dataset_offer_at(d, &it, ns, dataset_input_where(t->in), full)
               : dataset_offer(d, &it, full);
}

int dataset_read_csv(struct dataset *d, const struct dataset_opts *o,
                     const struct dataset_csv_form *form)
{
    struct columns c = {.form = form};
    struct dataset_csv t;
    bool full = false;
    int more, rc = dataset_csv_init(&t, o->path);

    if (rc != OK)
        return rc;
    rc = find_columns(&t, &c);
    while (rc == OK && !full) {
        rc = next_row(&t, &more);
        if (rc == OK && more)
            rc = read_row(d, &t, &c, &full);
        if (rc != OK && dataset_skip_bad(d, o, rc))
            rc = OK;
        else if (rc != OK || !more)
            break;
    }
    dataset_csv_fini(&t);
    return rc;
}
