/* The report that a person reads at the end: a line for each cell, then the headlines. */
#include "experiments/run/session.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text_number.h"
#include "experiments/load/load.h"
#include "experiments/load/study.h"
#include "experiments/record/head.h"

/* A column of the table: a job that serves has these, a study its own metrics. */
struct column {
    const char *metric, *title;
    int width, digits;
    double factor;
};

static const struct column served[] = {
    {"p50_ttft_ms", "TTFT p50", 9, 1, 1},
    {"p90_ttft_ms", "p90 ms", 9, 1, 1},
    {"p50_tpot_ms", "TPOT p50", 9, 2, 1},
    {"p90_tpot_ms", "p90 ms", 8, 2, 1},
    {"output_throughput_tok_s", "tok/s", 8, 1, 1},
    {"slo_attainment_frac", "SLO %", 7, 1, 100},
    {"decode_bandwidth_frac", "read %", 7, 1, 100},
    {"prefill_peak_frac", "peak %", 7, 1, 100},
    /* of open loop only: in closed loop the system sets the rate itself */
    {"offered_rate_rps", "offered/s", 9, 2, 1},
    {"achieved_rate_rps", "achieved/s", 10, 2, 1},
    {"request_throughput_rps", "completed/s", 11, 2, 1},
    {"request_goodput_rps", "goodput/s", 9, 2, 1},
    /* of cells that search their goodput; what stands before is then of the trial there */
    {"goodput_rps", "highest/s", 9, 2, 1},
    {"goodput_low_rps", "at least", 9, 2, 1},
    {"goodput_high_rps", "below", 9, 2, 1},
};
#define N_OPEN_LOOP  4 /* those before the last N_SEARCH */
#define N_SEARCH     3
#define SHOWN_ACROSS 8 /* more columns leave a terminal */
#define N_SERVED     ((int)(sizeof(served) / sizeof(served[0])))

/* A study's numbers that say how well something went; the rest is in the record. */
static const struct study_metric *shown_metric(const struct study *s, int k)
{
    const struct study_metric *m;

    for (m = s->metrics; m->name; m++)
        if (m->better[0] && k-- == 0)
            return m;
    return NULL;
}

static bool is_open_loop(const struct job_cell *c)
{
    const json_t *load = json_object_get(c->settings, "load");
    const struct load_process *p;

    return load_process_find(json_string_value(json_object_get(load, "process")), &p) ==
               OK &&
           p->arrivals;
}

static int n_shown(const struct job *j)
{
    int n = 0;

    while (j->study && shown_metric(j->study, n))
        n++;
    if (j->study)
        return n;
    for (int i = 0; i < j->n_cells; i++)
        if (j->cells[i].is_search)
            return N_SERVED;
    for (int i = 0; i < j->n_cells; i++)
        if (is_open_loop(&j->cells[i]))
            return N_SERVED - N_SEARCH;
    return N_SERVED - N_SEARCH - N_OPEN_LOOP;
}

/* digits < 0: four that count. */
static struct column column_of(const struct run_summary *s, int k)
{
    const char *name;
    int width;

    if (!s->job->study)
        return served[k];
    name = shown_metric(s->job->study, k)->name;
    width = (int)strlen(name) + 1;
    return (struct column){name, name, width > 9 ? width : 9, -1, 1};
}

static const char *metric_of(const struct run_summary *s, int column)
{
    const int k = column - s->n_shown, n = s->job->n_headlines;
    const char *m = k < 0 ? column_of(s, column).metric : s->job->headlines[k % n].metric;
    const char *again = k < n ? NULL : study_aa_find(s->job->study, m);

    if (k >= n)
        return again ? again : "";
    return job_is_swept_goodput(s->job, m) ? "slo_attainment_frac" : m;
}

static int cell_index(const struct job *j, const char *key)
{
    for (int i = 0; i < j->n_cells; i++)
        if (strcmp(j->cells[i].key, key) == 0)
            return i;
    return -1;
}

/* The bit of a warning's code; 0: there are too many. */
static uint32_t code_bit(struct run_summary *s, const char *code)
{
    const int max = sizeof(s->codes) / sizeof(s->codes[0]);

    for (int i = 0; i < s->n_codes; i++)
        if (strcmp(s->codes[i], code) == 0)
            return UINT32_C(1) << i;
    if (s->n_codes == max)
        return 0;
    snprintf(s->codes[s->n_codes], sizeof(s->codes[0]), "%s", code);
    return UINT32_C(1) << s->n_codes++;
}

static void take_warnings(struct run_summary *s, int cell, const struct record_cell *c)
{
    const json_t *list = json_object_get(c->attributes, "warnings");

    s->warned[cell] = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *code = json_object_get(json_array_get(list, i), "code");

        if (json_is_string(code))
            s->warned[cell] |= code_bit(s, json_string_value(code));
    }
}

static void free_rows(struct run_rows *r)
{
    mem_free(r->rows);
    mem_free(r->token_ns);
    *r = (struct run_rows){0};
}

/* Copy the cell's rows to *out, whose previous contents are freed. */
static void keep_rows(struct run_rows *out, const struct record_cell *c)
{
    const json_t *slo = json_object_get(c->attributes, "slo");
    size_t n_tok = 0;
    int64_t *token_ns;

    free_rows(out);
    for (size_t i = 0; i < c->n_rows; i++)
        n_tok += (size_t)c->rows[i].n_tok;
    out->rows = mem_new(MEM_HARNESS, c->n_rows, sizeof(*out->rows));
    out->token_ns = token_ns = mem_new(MEM_HARNESS, n_tok, sizeof(*token_ns));
    for (size_t i = 0; i < c->n_rows; i++) {
        struct metrics_row *r = &out->rows[i];
        size_t n = (size_t)c->rows[i].n_tok;

        *r = c->rows[i];
        r->token_ns = memcpy(token_ns, r->token_ns, n * sizeof(*token_ns));
        token_ns += n;
    }
    out->n = c->n_rows;
    out->slo = (struct metrics_slo){.ttft_ms = json_f64_at(slo, "ttft_ms"),
                                    .tpot_ms = json_f64_at(slo, "tpot_ms")};
}

/* *out is replaced by a copy of `text`, which may be NULL. */
static void keep_text(char **out, const char *text)
{
    mem_free(*out);
    *out = text ? mem_strdup(MEM_HARNESS, text) : NULL;
}

static bool has_ratio(const struct job *j)
{
    for (int k = 0; k < j->n_headlines; k++)
        if (j->headlines[k].relative_to)
            return true;
    return false;
}

static void take(struct run_summary *s, int cell, const struct record_cell *c)
{
    const json_t *described = json_object_get(c->attributes, "described");
    const char *error = json_string_value(json_object_get(c->attributes, "error"));

    take_warnings(s, cell, c);
    keep_text(&s->skipped[cell], c->state == RECORD_SKIPPED ? error : NULL);
    keep_text(&s->configuration[cell],
              json_string_value(json_object_get(described, "configuration")));
    if (has_ratio(s->job))
        keep_rows(&s->rows[cell], c);
    for (int k = 0; k < s->n_columns; k++) {
        struct metrics_value *to = &s->values[cell * s->n_columns + k];

        *to = (struct metrics_value){.value = NAN};
        snprintf(to->why, sizeof(to->why), "%s",
                 error ? error : "the cell was not measured");
        for (size_t i = 0; i < c->n_values; i++)
            if (strcmp(c->values[i].name, metric_of(s, k)) == 0) {
                *to = c->values[i];
                to->evidence = to->evidence ? to->evidence : c->evidence;
            }
    }
    s->done[cell] = c->state == RECORD_DONE;
}

static int on_cell(void *ctx, const struct record_cell *c)
{
    struct run_summary *s = ctx;
    int i = cell_index(s->job, c->key);

    if (i >= 0)
        take(s, i, c); /* of two attempts the later counts */
    return OK;
}

int run_summarise(struct run_summary *out, const struct job *j, const char *journal)
{
    size_t n_cells = (size_t)j->n_cells, n_headlines = (size_t)j->n_headlines;
    size_t n_columns =
        (size_t)n_shown(j) + n_headlines * (j->study && j->study->aa ? 2 : 1);
    int rc;

    *out = (struct run_summary){
        .job = j, .n_shown = n_shown(j), .n_columns = (int)n_columns};
    out->values = mem_new(MEM_HARNESS, n_cells * n_columns, sizeof(*out->values));
    out->done = mem_new(MEM_HARNESS, n_cells, sizeof(*out->done));
    out->skipped = mem_new(MEM_HARNESS, n_cells, sizeof(*out->skipped));
    out->configuration = mem_new(MEM_HARNESS, n_cells, sizeof(*out->configuration));
    out->rows = mem_new(MEM_HARNESS, n_cells, sizeof(*out->rows));
    out->warned = mem_new(MEM_HARNESS, n_cells, sizeof(*out->warned));
    out->headlines = mem_new(MEM_HARNESS, n_headlines, sizeof(*out->headlines));
    out->headline_whys = mem_new(MEM_HARNESS, n_headlines, sizeof(*out->headline_whys));
    out->headline_evidence =
        mem_new(MEM_HARNESS, n_headlines, sizeof(*out->headline_evidence));
    for (size_t i = 0; i < n_cells * n_columns; i++) {
        out->values[i].value = NAN;
        snprintf(out->values[i].why, sizeof(out->values[i].why), "the cell was not run");
    }
    rc = journal_read(journal, on_cell, out, NULL, NULL);
    for (int k = 0; k < j->n_headlines && rc == OK; k++)
        rc = run_headline(out, k);
    if (rc != OK)
        run_summary_fini(out);
    return rc;
}

void run_summary_fini(struct run_summary *s)
{
    for (int i = 0; i < s->job->n_cells; i++) {
        mem_free(s->skipped[i]);
        mem_free(s->configuration[i]);
        free_rows(&s->rows[i]);
    }
    mem_free(s->skipped);
    mem_free(s->configuration);
    mem_free(s->rows);
    mem_free(s->values);
    mem_free(s->done);
    mem_free(s->warned);
    mem_free(s->headlines);
    mem_free(s->headline_whys);
    mem_free(s->headline_evidence);
    *s = (struct run_summary){0};
}

/* What is written in place of a missing value. */
static const char *bound_of(const struct metrics_value *v, char out[RECORD_BOUND_BYTES])
{
    return v->has_interval && record_bound_text(v->lo, v->hi, out) ? out : "n/a";
}

static void print_cell(const struct run_summary *s, int i, int width, FILE *f)
{
    char bound[RECORD_BOUND_BYTES];

    fprintf(f, "%-*s", width, s->job->cells[i].label);
    for (int k = 0; k < s->n_shown; k++) {
        struct column c = column_of(s, k);
        double x = run_summary_value(s, i, k)->value * c.factor;

        if (isnan(x))
            fprintf(f, " %*s", c.width, bound_of(run_summary_value(s, i, k), bound));
        else if (c.digits < 0)
            fprintf(f, " %*s", c.width, TEXT_NUMBER(x, 4));
        else
            fprintf(f, " %*.*f", c.width, c.digits, x);
    }
    fprintf(f, "\n");
}

/* `evidence`: of the job, which is named where the headline's is another. */
static void print_headline(const struct record_headline *h, const char *evidence, FILE *f)
{
    char bound[RECORD_BOUND_BYTES];
    const bool is_bound = h->why && h->has_interval;

    if (is_bound && record_bound_text(h->lo, h->hi, bound))
        fprintf(f, "%s: %s %s (%s)", h->name, bound, h->unit, h->why);
    else if (h->why)
        fprintf(f, "%s: n/a (%s)", h->name, h->why);
    else
        fprintf(f, "%s: %s %s", h->name, TEXT_NUMBER(h->value, 6), h->unit);
    if (h->has_interval && !is_bound)
        fprintf(f, " (95 %% interval %s to %s)", TEXT_NUMBER(h->lo, 6),
                TEXT_NUMBER(h->hi, 6));
    if (h->has_detectable)
        fprintf(f, " (%s %s %%)",
                fabs(log(h->value)) < log1p(h->detectable_frac)
                    ? "not detectable, which begins at"
                    : "detectable from",
                TEXT_NUMBER(100 * h->detectable_frac, 2));
    else if (h->detectable_why)
        fprintf(f, " (detectable: n/a, %s)", h->detectable_why);
    if (h->n_left_out)
        fprintf(f, " (%zu cells left out)", h->n_left_out);
    if (h->evidence && strcmp(h->evidence, evidence) != 0)
        fprintf(f, " (%s)", h->evidence);
    fprintf(f, "\n");
}

/* One cell of many numbers: a line each, where a row would leave the terminal. */
static void print_down(const struct run_summary *s, FILE *f)
{
    for (int k = 0; k < s->n_shown; k++) {
        struct column c = column_of(s, k);
        const struct metrics_value *v = run_summary_value(s, 0, k);

        if (isnan(v->value)) {
            fprintf(f, "%-24s %10s  %s\n", c.title, "n/a", v->why);
            continue;
        }
        fprintf(f, "%-24s %10s %s", c.title, TEXT_NUMBER(v->value, 4), v->unit);
        if (v->has_interval)
            fprintf(f, " (95 %% interval %s to %s)", TEXT_NUMBER(v->lo, 4),
                    TEXT_NUMBER(v->hi, 4));
        fputc('\n', f);
    }
}

/* A row for each cell. */
static void print_table(const struct run_summary *s, FILE *f)
{
    int width = 4;

    for (int i = 0; i < s->job->n_cells; i++)
        if ((int)strlen(s->job->cells[i].label) > width)
            width = (int)strlen(s->job->cells[i].label);
    fprintf(f, "%-*s", width, "cell");
    for (int k = 0; k < s->n_shown; k++) {
        struct column c = column_of(s, k);

        fprintf(f, " %*s", c.width, c.title);
    }
    fprintf(f, "\n");
    for (int i = 0; i < s->job->n_cells; i++)
        print_cell(s, i, width, f);
}

static void print_skipped(const struct run_summary *s, FILE *f)
{
    for (int i = 0; i < s->job->n_cells; i++) {
        int n = 0;

        for (int k = 0; s->skipped[i] && k < s->job->n_cells; k++) {
            bool same = s->skipped[k] && strcmp(s->skipped[i], s->skipped[k]) == 0;

            if (same && k < i) /* printed with that one */
                n = s->job->n_cells + 1;
            n += same;
        }
        if (n > 0 && n <= s->job->n_cells)
            fprintf(f, "\nskipped: %s%s: %s\n", s->job->cells[i].label,
                    n > 1 ? " and others" : "", s->skipped[i]);
    }
}

/* Print those of n neighbouring cells that are the same system as the first. */
static void print_same(const struct run_summary *s, int first, int n, bool *named,
                       FILE *f)
{
    const char *label = s->job->cells[first].label, *own = s->configuration[first];
    const struct job_axis *a = job_variant_axis(s->job);
    int n_same = 0, width = (int)(strstr(label, "variant=") - label);

    for (int i = first + 1; own && i < first + n; i++)
        n_same += !job_is_again(s->job, &s->job->cells[i]) && s->configuration[i] &&
                  strcmp(s->configuration[i], own) == 0;
    if (n_same == 0 || named[first])
        return;
    fprintf(f, "\nsame configuration: %.*s", width, label);
    for (int i = first; i < first + n; i++)
        if (!job_is_again(s->job, &s->job->cells[i]) && s->configuration[i] &&
            strcmp(s->configuration[i], own) == 0) {
            const json_t *name = json_object_get(s->job->cells[i].axes, a->name);

            fprintf(f, "%s%s", i > first ? ", " : "", json_string_value(name));
            named[i] = true;
        }
    fprintf(f, " (%s)\n", own);
}

/* Variants that turned out to be the same system. */
static void print_same_systems(const struct run_summary *s, FILE *f)
{
    const struct job_axis *a = job_variant_axis(s->job);
    int n = a ? (int)json_array_size(a->values) : 1;
    bool *named = mem_new(MEM_HARNESS, (size_t)s->job->n_cells, sizeof(*named));

    for (int i = 0; a && i < s->job->n_cells / (int)s->job->head.repeats; i++)
        print_same(s, i, n - i % n, named, f);
    mem_free(named);
}

/* Each warning was printed when it came; here a reader learns what to distrust. */
static void print_warnings(const struct run_summary *s, FILE *f)
{
    const char *before = "\nwarnings: ";

    for (int k = 0; k < s->n_codes; k++) {
        int n = 0;

        for (int i = 0; i < s->job->n_cells; i++)
            n += s->warned[i] >> k & 1;
        if (n)
            fprintf(f, "%s%s in %d of %d cells", before, s->codes[k], n, s->job->n_cells);
        before = n ? "; " : before;
    }
    if (before[0] == ';')
        fprintf(f, "\n");
}

void run_summary_print(const struct run_summary *s, FILE *f)
{
    if (s->job->study && s->job->n_cells == 1 && s->n_shown > SHOWN_ACROSS)
        print_down(s, f);
    else
        print_table(s, f);
    if (s->job->n_headlines)
        fprintf(f, "\n");
    for (int k = 0; k < s->job->n_headlines; k++)
        print_headline(&s->headlines[k], s->job->evidence, f);
    print_skipped(s, f);
    print_same_systems(s, f);
    print_warnings(s, f);
}

/* --- when a run with repeats "auto" ends: each headline has an interval that is narrow enough */

struct job run_job_of(const struct job *j, int64_t repeats)
{
    struct job out = *j;

    out.n_cells = j->n_cells / (int)j->head.repeats * (int)repeats;
    out.head.repeats = repeats;
    return out;
}

/* How far the interval reaches to each side: 0.03 from 1 / 1.03 of the value to 1.03 of it, or,
 * where not all of it is above 0, from 3 % of the value below it to 3 % above. INFINITY: there is
 * none. */
static double reach(const struct record_headline *h)
{
    if (!h->has_interval)
        return INFINITY;
    if (h->lo == h->hi)
        return 0;
    return h->lo > 0 ? sqrt(h->hi / h->lo) - 1 : (h->hi - h->lo) / 2 / fabs(h->value);
}

/* The headline that is known least; NULL: none has a value. */
static const struct record_headline *widest(const struct run_summary *s)
{
    const struct record_headline *out = NULL;

    for (int k = 0; k < s->job->n_headlines; k++) {
        const struct record_headline *h = &s->headlines[k];

        if (!isnan(h->value) && (!out || reach(h) > reach(out)))
            out = h;
    }
    return out;
}

static void say_why(char why[RUN_KNOWN_BYTES], bool known,
                    const struct record_headline *h, const struct job *j)
{
    long long n = (long long)j->head.repeats;

    if (!h)
        snprintf(why, RUN_KNOWN_BYTES, "after %lld repeats no headline has a value", n);
    else if (isinf(reach(h)))
        snprintf(
            why, RUN_KNOWN_BYTES,
            "not known after %lld repeats: %.80s has no interval, since a repeat has "
            "no value, or it is 0",
            n, h->name);
    else
        snprintf(
            why, RUN_KNOWN_BYTES,
            "%s after %lld repeats: the widest interval, of %.80s, reaches %.2g %% to "
            "each side, %.2g %% were asked for",
            known ? "known" : "not known", n, h->name, 100 * reach(h),
            100 * j->head.repeats_precision_frac);
}

int run_known(bool *known, char why[RUN_KNOWN_BYTES], const struct run_session *s,
              int64_t repeats)
{
    struct job so_far = run_job_of(s->job, repeats);
    const struct record_headline *h;
    struct run_summary summary;

    TRY(run_summarise(&summary, &so_far, journal_path(s->journal)));
    h = widest(&summary);
    *known = !h || reach(h) <= so_far.head.repeats_precision_frac;
    say_why(why, *known, h, &so_far);
    run_summary_fini(&summary);
    return OK;
}
