/* What a person reads at the end: a line a cell, then the headlines. */
#include "experiments/harness/run_session.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"

/* The columns of the table; those of the headlines follow them in run_summary. */
static const struct column {
    const char *metric, *title;
    int width, digits;
    double factor;
} columns[] = {
    {"p50_ttft_ms", "TTFT p50", 9, 1, 1},
    {"p90_ttft_ms", "p90 ms", 9, 1, 1},
    {"p50_tpot_ms", "TPOT p50", 9, 2, 1},
    {"p90_tpot_ms", "p90 ms", 8, 2, 1},
    {"output_throughput_tok_s", "tok/s", 8, 1, 1},
    {"slo_attainment_frac", "SLO %", 7, 1, 100},
    {"decode_bandwidth_frac", "read %", 7, 1, 100},
    {"prefill_peak_frac", "peak %", 7, 1, 100},
};
#define N_COLUMNS ((int)(sizeof(columns) / sizeof(columns[0])))

static const char *metric_of(const struct run_summary *s, int column)
{
    const char *m = column < N_COLUMNS ? columns[column].metric
                                       : s->job->headlines[column - N_COLUMNS].metric;

    return strcmp(m, "goodput_rps") == 0 ? "slo_attainment_frac" : m;
}

static int cell_index(const struct job *j, const char *key)
{
    for (int i = 0; i < j->n_cells; i++)
        if (strcmp(j->cells[i].key, key) == 0)
            return i;
    return -1;
}

static void take(struct run_summary *s, int cell, const struct record_cell *c)
{
    for (int k = 0; k < s->n_columns; k++) {
        size_t at = (size_t)(cell * s->n_columns + k);

        s->values[at] = NAN;
        snprintf(s->whys[at], sizeof(s->whys[at]), "the cell was not measured");
        for (size_t i = 0; i < c->n_values; i++)
            if (strcmp(c->values[i].name, metric_of(s, k)) == 0) {
                s->values[at] = c->values[i].value;
                memcpy(s->whys[at], c->values[i].why, sizeof(s->whys[at]));
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

/* Goodput of one repeat: attainment against rate over its chosen cells. */
static double goodput(const struct run_summary *s, const bool *chosen, int column,
                      int64_t repeat)
{
    const struct job *j = s->job;
    double *rate = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*rate));
    double *met = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*met));
    double x = NAN, target = 0;
    size_t n = 0;

    for (int i = 0; rate && met && i < j->n_cells; i++) {
        const json_t *settings = j->cells[i].settings;

        if (!chosen[i] || j->cells[i].repeat != repeat)
            continue;
        target = json_number_value(
            json_object_get(json_object_get(settings, "slo"), "target_frac"));
        rate[n] = json_number_value(
            json_object_get(json_object_get(settings, "load"), "rate_rps"));
        met[n++] = s->values[i * s->n_columns + column];
    }
    if (n)
        x = metrics_goodput_rps(rate, met, n, target);
    mem_free(rate);
    mem_free(met);
    return x;
}

/* One value a repeat: NaN with a reason spoils the whole. */
static int gather(const struct run_summary *s, const struct job_headline *h,
                  const bool *chosen, int column, double *x, char why[96])
{
    const struct job *j = s->job;
    bool sweep = strcmp(h->metric, "goodput_rps") == 0;
    int n = 0;

    for (int64_t r = 0; sweep && r < j->head.repeats; r++) {
        x[n] = goodput(s, chosen, column, r);
        if (isnan(x[n++]))
            snprintf(why, 96, "the lowest rate already misses the objective");
    }
    for (int i = 0; !sweep && i < j->n_cells; i++) {
        size_t at = (size_t)(i * s->n_columns + column);

        if (!chosen[i])
            continue;
        x[n] = s->done[i] ? s->values[at] : NAN;
        if (isnan(x[n++]))
            memcpy(why, s->whys[at], 96);
    }
    return n;
}

static int headline(struct run_summary *s, int k)
{
    const struct job *j = s->job;
    const struct job_headline *h = &j->headlines[k];
    struct record_headline *out = &s->headlines[k];
    bool *chosen = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*chosen));
    double *x = mem_new(MEM_HARNESS, (size_t)(j->n_cells + j->head.repeats), sizeof(*x));
    char *why = s->headline_whys[k];
    int n = 0, rc = chosen && x ? OK : ERR_NOMEM;

    if (rc != OK)
        goto out;
    if (job_headline_cells(j, h, chosen) > 0)
        n = gather(s, h, chosen, N_COLUMNS + k, x, why);
    else
        snprintf(why, 96, "no cell of this run has the settings it names");
    *out = (struct record_headline){.name = h->name,
                                    .unit = h->unit ? h->unit : metrics_unit(h->metric),
                                    .better = h->better ? "lower" : "higher",
                                    .value = why[0] ? NAN : stats_median(x, (size_t)n)};
    out->why = isnan(out->value) ? why : NULL;
out:
    mem_free(chosen);
    mem_free(x);
    return rc;
}

int run_summarise(struct run_summary *out, const struct job *j, const char *journal)
{
    size_t n_cells = (size_t)j->n_cells, n_headlines = (size_t)j->n_headlines;
    size_t n_columns = (size_t)N_COLUMNS + n_headlines;
    int rc = ERR_NOMEM;

    *out = (struct run_summary){.job = j, .n_columns = (int)n_columns};
    out->values = mem_new(MEM_HARNESS, n_cells * n_columns, sizeof(*out->values));
    out->whys = mem_new(MEM_HARNESS, n_cells * n_columns, sizeof(*out->whys));
    out->done = mem_new(MEM_HARNESS, n_cells, sizeof(*out->done));
    out->headlines = mem_new(MEM_HARNESS, n_headlines, sizeof(*out->headlines));
    out->headline_whys = mem_new(MEM_HARNESS, n_headlines, sizeof(*out->headline_whys));
    if (!out->values || !out->whys || !out->done || !out->headlines ||
        !out->headline_whys)
        goto out;
    for (size_t i = 0; i < n_cells * n_columns; i++) {
        out->values[i] = NAN;
        snprintf(out->whys[i], sizeof(out->whys[i]), "the cell was not run");
    }
    rc = journal_read(journal, on_cell, out, NULL, NULL);
    for (int k = 0; k < j->n_headlines && rc == OK; k++)
        rc = headline(out, k);
out:
    if (rc != OK)
        run_summary_fini(out);
    return rc;
}

void run_summary_fini(struct run_summary *s)
{
    mem_free(s->values);
    mem_free(s->whys);
    mem_free(s->done);
    mem_free(s->headlines);
    mem_free(s->headline_whys);
    *s = (struct run_summary){0};
}

static void print_cell(const struct run_summary *s, int i, int width, FILE *f)
{
    fprintf(f, "%-*s", width, s->job->cells[i].label);
    for (int k = 0; k < N_COLUMNS; k++) {
        double x = s->values[i * s->n_columns + k] * columns[k].factor;

        if (isnan(x))
            fprintf(f, " %*s", columns[k].width, "n/a");
        else
            fprintf(f, " %*.*f", columns[k].width, columns[k].digits, x);
    }
    fprintf(f, "\n");
}

void run_summary_print(const struct run_summary *s, FILE *f)
{
    int width = 4;

    for (int i = 0; i < s->job->n_cells; i++)
        if ((int)strlen(s->job->cells[i].label) > width)
            width = (int)strlen(s->job->cells[i].label);
    fprintf(f, "%-*s", width, "cell");
    for (int k = 0; k < N_COLUMNS; k++)
        fprintf(f, " %*s", columns[k].width, columns[k].title);
    fprintf(f, "\n");
    for (int i = 0; i < s->job->n_cells; i++)
        print_cell(s, i, width, f);
    if (s->job->n_headlines)
        fprintf(f, "\n");
    for (int k = 0; k < s->job->n_headlines; k++) {
        const struct record_headline *h = &s->headlines[k];

        if (h->why)
            fprintf(f, "%s: n/a (%s)\n", h->name, h->why);
        else
            fprintf(f, "%s: %.5g %s\n", h->name, h->value, h->unit);
    }
}
