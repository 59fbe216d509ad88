#include "experiments/metrics/compare.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "base/stats_sequence.h"
#include "experiments/metrics/bootstrap.h"

const char *compare_verdict_name(enum compare_verdict v)
{
    static const char *const names[] = {"same", "better", "worse", "cannot say"};

    return names[v];
}

int compare_turn(int64_t round, int turn, int n)
{
    int forward = round % 2 ? n - 1 - turn : turn;

    return n == 2 ? forward : (int)((round / 2 + forward) % n);
}

/* --- between runs */

/* The logarithm of the metric for each restart (of its repeats, their mean) or repeat. */
static double *log_units(const struct compare_side *s, bool repeats, size_t *n)
{
    double *x = mem_new(MEM_HARNESS, s->n, sizeof(*x)), *sum = x;
    size_t n_of_unit = 0;

    *n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (repeats || i == 0 || s->runs[i].restart != s->runs[i - 1].restart) {
            sum = &x[(*n)++];
            n_of_unit = 0;
        }
        *sum += (log(s->runs[i].value) - *sum) / (double)++n_of_unit;
    }
    return x;
}

static size_t n_restarts(const struct compare_side *s)
{
    return s->n ? (size_t)s->runs[s->n - 1].restart + 1 : 0;
}

/* Half of the interval of x, which is changed, less y. */
static double half_between(double *x, size_t n_x, const double *y, size_t n_y, bool pairs,
                           bool sequential)
{
    if (!sequential)
        return stats_difference_half95(x, n_x, y, n_y, pairs);
    if (!pairs)
        return INFINITY;
    for (size_t i = 0; i < n_x; i++)
        x[i] -= y[i];
    return stats_sequence_half95(x, n_x);
}

static void between_runs(struct compare_result *out, const struct compare_side *a,
                         const struct compare_side *b, const struct compare_opts *o)
{
    const bool repeats = n_restarts(a) + n_restarts(b) <= 2;
    double *x = log_units(a, repeats, &out->n_units[0]);
    double *y = log_units(b, repeats, &out->n_units[1]);
    double mean_a = stats_mean(x, out->n_units[0]);
    double mean_b = stats_mean(y, out->n_units[1]);

    out->units_repeats = repeats;
    out->in_turn =
        (o->in_turn || o->sequential) && !repeats && out->n_units[0] == out->n_units[1];
    out->a = exp(mean_a);
    out->b = exp(mean_b);
    out->ratio = exp(mean_b - mean_a);
    out->between_runs =
        half_between(x, out->n_units[0], y, out->n_units[1], out->in_turn, o->sequential);
    mem_free(x);
    mem_free(y);
}

/* --- between requests */

/* The resamplers of both sides: A's, then B's. */
struct drawing {
    const struct compare_result *result;
    const char *metric;
    struct compare_resampler *of;
    double *weight; /* of each run in the difference of means; negative for A */
    size_t n;
    size_t *starts, n_starts;
};

static void close_drawing(struct drawing *d)
{
    for (size_t i = 0; d->of && i < d->n; i++)
        compare_resampler_close(&d->of[i]);
    mem_free(d->of);
    mem_free(d->weight);
    mem_free(d->starts);
}

static void add_runs(struct drawing *d, const struct compare_side *s, double sign)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t n_repeats = 0;

        for (size_t k = 0; k < s->n; k++)
            n_repeats += s->runs[k].restart == s->runs[i].restart;
        d->weight[d->n] = sign / (double)n_restarts(s) / (double)n_repeats;
        compare_resampler_open(&d->of[d->n++], &s->runs[i]);
    }
}

static bool same_requests(const struct drawing *d)
{
    for (size_t k = 1; k < d->n; k++) {
        if (d->of[k].n != d->of[0].n)
            return false;
        for (size_t i = 0; i < d->of[0].n; i++)
            if (d->of[k].rows[i].n_prompt_tok != d->of[0].rows[i].n_prompt_tok ||
                d->of[k].rows[i].n_output_tok != d->of[0].rows[i].n_output_tok)
                return false;
    }
    return true;
}

static void open_drawing(struct drawing *d, struct compare_result *out,
                         const struct compare_side *a, const struct compare_side *b)
{
    size_t n = a->n + b->n, most = 0;

    d->of = mem_new(MEM_HARNESS, n, sizeof(*d->of));
    d->weight = mem_new(MEM_HARNESS, n, sizeof(*d->weight));
    add_runs(d, a, -1);
    add_runs(d, b, 1);
    out->n_requests = SIZE_MAX;
    for (size_t i = 0; i < d->n; i++) {
        most = d->of[i].n > most ? d->of[i].n : most;
        if (d->of[i].n < out->n_requests)
            out->n_requests = d->of[i].n;
    }
    out->same_requests = same_requests(d);
    d->n_starts = most;
    d->starts = mem_new(MEM_HARNESS, most, sizeof(*d->starts));
}

/* The difference of the means of one draw of all runs. */
static int draw_once(void *ctx, struct rng *rng, size_t block, double *difference)
{
    struct drawing *d = ctx;

    *difference = 0;
    for (size_t i = 0; i < d->n; i++) {
        double value;

        if (i == 0 || !d->result->same_requests)
            for (size_t k = 0; k < d->n_starts; k++)
                d->starts[k] = (size_t)rng_below(rng, d->of[i].n);
        TRY(compare_resample(&d->of[i], d->metric, block, d->starts, &value));
        *difference += d->weight[i] * log(value);
    }
    return OK;
}

static int between_requests(struct compare_result *out, const struct compare_side *a,
                            const struct compare_side *b, const struct compare_opts *o)
{
    struct drawing d = {.result = out, .metric = o->metric};
    int rc;

    open_drawing(&d, out, a, b);
    rc = stats_blocks_half95(&out->between_requests, &out->block,
                             &(struct stats_blocks){.n = out->n_requests,
                                                    .seed = o->seed,
                                                    .stream = "compare",
                                                    .ctx = &d,
                                                    .draw = draw_once});
    close_drawing(&d);
    return rc;
}

/* --- the answer */

static bool all_zero(const struct compare_side *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->runs[i].value != 0)
            return false;
    return true;
}

static bool has_values(struct compare_result *out, const struct compare_side *s,
                       const char *side)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->runs[i].value > 0)
            continue;
        snprintf(out->why, sizeof(out->why), "%s has a run %s", side,
                 isnan(s->runs[i].value)
                     ? "without a value"
                     : "with the value 0, of which there is no ratio");
        return false;
    }
    return true;
}

static bool have_rows(const struct compare_side *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!s->runs[i].rows)
            return false;
    return true;
}

static void decide(struct compare_result *r, const struct compare_opts *o)
{
    double half = fmax(r->between_runs, r->between_requests); /* the one there is */
    double margin = log1p(o->margin_frac);
    double worse_lo, worse_hi;

    if (isnan(half)) {
        snprintf(r->why, sizeof(r->why),
                 "one run on each side, and too few requests in it or values of 0 among "
                 "them");
        return;
    }
    if (isinf(half)) {
        snprintf(r->why, sizeof(r->why),
                 "intervals that allow for looking begin with %d restarts of each",
                 STATS_SEQUENCE_LEAST);
        return;
    }
    r->lo = r->ratio * exp(-half);
    r->hi = r->ratio * exp(half);
    worse_lo = o->higher_is_better ? -log(r->hi) : log(r->lo);
    worse_hi = o->higher_is_better ? -log(r->lo) : log(r->hi);
    r->maybe_worse = worse_hi > margin;
    if (worse_lo >= -margin && worse_hi <= margin)
        r->verdict = COMPARE_SAME;
    else if (worse_hi < 0)
        r->verdict = COMPARE_BETTER;
    else if (worse_lo > margin)
        r->verdict = COMPARE_WORSE;
}

/* Compare a and b, without the A/A. */
static int compare_sides(struct compare_result *out, const struct compare_side *a,
                         const struct compare_side *b, const struct compare_opts *o)
{
    *out = (struct compare_result){.a = NAN,
                                   .b = NAN,
                                   .ratio = NAN,
                                   .lo = NAN,
                                   .hi = NAN,
                                   .between_runs = NAN,
                                   .between_requests = NAN,
                                   .n_units = {a->n, b->n},
                                   .verdict = COMPARE_UNKNOWN,
                                   .maybe_worse = true,
                                   .aa = {NAN, NAN, NAN, NAN, ""}};
    if (a->n == 0 || b->n == 0) {
        snprintf(out->why, sizeof(out->why), "%s has no run", a->n ? "B" : "A");
        return OK;
    }
    if (all_zero(a) && all_zero(b)) { /* of which there is no ratio, but no doubt */
        out->a = out->b = 0;
        out->ratio = out->lo = out->hi = 1;
        out->maybe_worse = false;
        out->verdict = COMPARE_SAME;
        return OK;
    }
    if (!has_values(out, a, "A") || !has_values(out, b, "B"))
        return OK;
    between_runs(out, a, b, o);
    if (have_rows(a) && have_rows(b)) {
        if (o->paired)
            TRY(compare_pairs(out, a, b, o));
        if (out->n_pairs == 0)
            TRY(between_requests(out, a, b, o));
    }
    decide(out, o);
    return OK;
}

/* --- the A/A */

/* A half with fewer restarts has fewer than 2 degrees of freedom: its interval says nothing. */
#define RESTARTS_OF_HALF 3

/* The even restarts of a side to half[0], the odd ones to half[1], as many to each. `runs`:
 * [s->n] for both. */
static void split(struct compare_side half[2], struct compare_run *runs,
                  const struct compare_side *s)
{
    size_t n_of_half = n_restarts(s) / 2, n = 0;

    for (int h = 0; h < 2; h++) {
        half[h] = (struct compare_side){.runs = runs + n};
        for (size_t i = 0; i < s->n; i++) {
            int restart = s->runs[i].restart;

            if (restart % 2 != h || (size_t)(restart / 2) >= n_of_half)
                continue;
            runs[n] = s->runs[i];
            runs[n++].restart = restart / 2;
            half[h].n++;
        }
    }
}

static int compare_halves(struct compare_result *out, const struct compare_side *a,
                          const struct compare_opts *o)
{
    struct compare_run *runs = mem_new(MEM_HARNESS, a->n, sizeof(*runs));
    struct compare_side half[2];
    int rc;

    split(half, runs, a);
    rc = compare_sides(out, &half[0], &half[1], o);
    mem_free(runs);
    return rc;
}

static int compare_again(struct compare_aa *out, const struct compare_side *a,
                         const struct compare_opts *o)
{
    const bool arm = o->aa_source == COMPARE_AA_ARM;
    struct compare_opts again = *o;
    struct compare_result r;

    if (arm)
        again.in_turn = o->aa_in_turn;
    if (arm ? n_restarts(a) < 2 || n_restarts(o->aa) < 2
            : n_restarts(a) < 2 * RESTARTS_OF_HALF) {
        snprintf(out->why, sizeof(out->why),
                 arm ? "an A/A of one restart does not know what a restart changes"
                     : "an A/A of A's own records needs %d restarts of it",
                 2 * RESTARTS_OF_HALF);
        return OK;
    }
    TRY(arm ? compare_sides(&r, a, o->aa, &again) : compare_halves(&r, a, &again));
    out->ratio = r.ratio;
    out->lo = r.lo;
    out->hi = r.hi;
    out->detectable_frac = stats_detectable_frac(r.lo, r.hi);
    if (isnan(r.lo))
        snprintf(out->why, sizeof(out->why), "%.120s", r.why);
    return OK;
}

/* Withdraw a verdict on a difference that is smaller than the A/A could have shown. A second arm
 * whose A/A has no interval supports no verdict. */
static void doubt(struct compare_result *r, const struct compare_opts *o)
{
    const bool arm = o->aa_source == COMPARE_AA_ARM;
    double detectable = r->aa.detectable_frac;

    if ((r->verdict != COMPARE_BETTER && r->verdict != COMPARE_WORSE) ||
        (isnan(detectable) ? !arm : fabs(log(r->ratio)) >= log1p(detectable)))
        return;
    r->verdict = COMPARE_UNKNOWN;
    r->maybe_worse = r->maybe_worse || !(detectable <= o->margin_frac);
    snprintf(r->why, sizeof(r->why), "%.120s",
             isnan(detectable) ? r->aa.why
                               : "a difference as large is seen between A and A");
}

int compare_metric(struct compare_result *out, const struct compare_side *a,
                   const struct compare_side *b, const struct compare_opts *o)
{
    TRY(compare_sides(out, a, b, o));
    if (o->aa_source == COMPARE_AA_NONE)
        snprintf(out->aa.why, sizeof(out->aa.why), "there is no A/A");
    else
        TRY(compare_again(&out->aa, a, o));
    doubt(out, o);
    return OK;
}
