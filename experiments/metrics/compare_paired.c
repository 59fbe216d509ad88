/* Ratios of requests that two systems served one right after the other. */
#include "experiments/metrics/bootstrap.h"

#include <math.h>

#include "base/mem.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "base/stats_sequence.h"

/* Append the logarithms of the ratios of each two requests, of which both have the metric on their
 * own, to logs[*n]. */
static int append_pairs(double *logs, size_t *n, const struct compare_run *a,
                        const struct compare_run *b, const char *metric)
{
    struct metrics_input in = {.n_rows = 1,
                               .read_gbps = NAN,
                               .peak_gflops = NAN,
                               .read_why = "",
                               .peak_why = ""};

    for (size_t i = 0; i + 1 < a->n_rows && i + 1 < b->n_rows; i += 2) {
        double sum = 0, v;

        for (size_t k = 0; k < 4; k++) { /* A's two, then B's */
            in.rows = (k < 2 ? a : b)->rows + i + k % 2;
            in.slo = (k < 2 ? a : b)->slo;
            TRY(metrics_one(&v, &in, metric));
            sum += k < 2 ? -log(v) : log(v);
        }
        if (isfinite(sum))
            logs[(*n)++] = sum / 2;
    }
    return OK;
}

/* Ratios in the order in which they were measured. */
struct ratios {
    double *logs, *drawn; /* [n] */
    size_t n;
};

static int draw_median(void *ctx, struct rng *rng, size_t length, double *out)
{
    struct ratios *r = ctx;
    size_t from = 0;

    for (size_t i = 0; i < r->n; i++) {
        if (i % length == 0)
            from = (size_t)rng_below(rng, r->n);
        r->drawn[i] = r->logs[(from + i % length) % r->n];
    }
    *out = stats_median(r->drawn, r->n);
    return OK;
}

/* How far the interval of the median by order statistics reaches. The bootstrap alone is too narrow
 * where most ratios are near each other and waves make some large. */
static double half_of_median(const double *logs, size_t n)
{
    const double median = stats_median(logs, n);
    int lo, hi;

    stats_quantile95((int)n, 0.5, &lo, &hi);
    return fmax(median - stats_percentile(logs, n, (lo + 0.5) / (double)n),
                stats_percentile(logs, n, (hi + 0.5) / (double)n) - median);
}

int compare_pairs(struct compare_result *out, const struct compare_side *a,
                  const struct compare_side *b, const struct compare_opts *o)
{
    const bool of_request = a->n == b->n && metrics_is_of_request(o->metric);
    double *medians = mem_new(MEM_HARNESS, a->n, sizeof(*medians));
    struct ratios r = {0};
    size_t n = 0;
    int rc = OK;

    for (size_t i = 0; i < a->n && of_request && rc == OK; i++) {
        size_t first = r.n;

        r.logs =
            mem_resize(MEM_HARNESS, r.logs, first + a->runs[i].n_rows, sizeof(*r.logs));
        rc = append_pairs(r.logs, &r.n, &a->runs[i], &b->runs[i], o->metric);
        if (r.n > first)
            medians[n++] = stats_median(r.logs + first, r.n - first);
    }
    r.drawn = mem_new(MEM_HARNESS, r.n, sizeof(*r.drawn));
    if (rc == OK)
        rc = stats_blocks_half95(&out->between_requests, &out->block,
                                 &(struct stats_blocks){.n = r.n,
                                                        .seed = o->seed,
                                                        .stream = "pairs",
                                                        .ctx = &r,
                                                        .draw = draw_median});
    if (rc == OK && n > 0) {
        out->between_requests += /* NaN stays: too few */
            fmax(0, half_of_median(r.logs, r.n) - out->between_requests);
        out->n_pairs = r.n;
        out->block *= 2;
        out->ratio = exp(stats_mean(medians, n));
        out->same_requests = out->in_turn = true;
        out->between_runs = o->sequential ? stats_sequence_half95(medians, n)
                                          : stats_mean_half95(medians, n);
    }
    mem_free(r.logs);
    mem_free(r.drawn);
    mem_free(medians);
    return rc;
}
