/* The interval of a headline that is a ratio: its cells and those that it is relative to are
 * the two sides of a comparison (compare.h), a restart for each repeat, in turn. */
#include "experiments/run/session.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/stats_interval.h"
#include "experiments/metrics/compare.h"

int run_keep_rows(struct run_rows *out, const struct record_cell *c)
{
    const json_t *slo = json_object_get(c->attributes, "slo");
    size_t n_tok = 0;
    int64_t *token_ns;

    run_rows_free(out);
    for (size_t i = 0; i < c->n_rows; i++)
        n_tok += (size_t)c->rows[i].n_tok;
    out->rows = mem_new(MEM_HARNESS, c->n_rows, sizeof(*out->rows));
    out->token_ns = token_ns = mem_new(MEM_HARNESS, n_tok, sizeof(*token_ns));
    if (!out->rows || !token_ns)
        return ERR_NOMEM;
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
    return OK;
}

void run_rows_free(struct run_rows *r)
{
    mem_free(r->rows);
    mem_free(r->token_ns);
    *r = (struct run_rows){0};
}

static struct compare_run run_of(const struct run_summary *s, int cell, int column,
                                 int restart)
{
    const struct run_rows *r = &s->rows[cell];

    return (struct compare_run){.restart = restart,
                                .value = run_summary_value(s, cell, column)->value,
                                .rows = r->n ? r->rows : NULL,
                                .n_rows = r->n,
                                .slo = r->slo};
}

/* Both sides: of each repeat the one chosen cell, and the one it is relative to. n: repeats;
 * 0 where a cell is missing or several are chosen. */
static size_t fill_sides(struct compare_run *a, struct compare_run *b,
                         const struct run_summary *s, const struct job_headline *h,
                         const bool *chosen, int column)
{
    size_t n = 0;

    for (int i = 0; i < s->job->n_cells; i++) {
        int reference = chosen[i] ? job_headline_reference(s->job, h, i) : -1;

        if (!chosen[i])
            continue;
        if (reference < 0 || !s->done[i] || !s->done[reference] ||
            n == (size_t)s->job->head.repeats)
            return 0;
        a[n] = run_of(s, reference, column, (int)n);
        b[n] = run_of(s, i, column, (int)n);
        n++;
    }
    return n;
}

int run_interval(const struct run_summary *s, const struct job_headline *h,
                 const bool *chosen, int column, struct record_headline *out)
{
    size_t repeats = (size_t)s->job->head.repeats, n;
    struct compare_run *a = mem_new(MEM_HARNESS, repeats, sizeof(*a));
    struct compare_run *b = mem_new(MEM_HARNESS, repeats, sizeof(*b));
    const struct compare_opts o = {.metric = h->metric,
                                   .higher_is_better = h->better == 0,
                                   .in_turn = true,
                                   .seed = 1};
    struct compare_result r;
    int rc = a && b ? OK : ERR_NOMEM;

    n = rc == OK ? fill_sides(a, b, s, h, chosen, column) : 0;
    if (n > 0)
        rc = compare_metric(&r, &(struct compare_side){a, n},
                            &(struct compare_side){b, n}, &o);
    if (n > 0 && rc == OK && isfinite(r.lo) && isfinite(r.hi)) {
        out->has_interval = true;
        out->lo = r.lo;
        out->hi = r.hi;
    }
    mem_free(a);
    mem_free(b);
    return rc;
}

void run_interval_of_mean(struct record_headline *out, bool geomean, double *y, size_t n)
{
    double half;

    for (size_t i = 0; i < n && geomean; i++)
        y[i] = log(y[i]);
    half = stats_mean_half95(y, n);
    out->lo = geomean ? out->value * exp(-half) : out->value - half;
    out->hi = geomean ? out->value * exp(half) : out->value + half;
    out->has_interval = n > 1 && isfinite(out->lo) && isfinite(out->hi);
}
