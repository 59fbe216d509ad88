/* A headline number from the cells that it names: over repeats, settings or rates, as a ratio
 * or not, with its interval. */
#include "experiments/run/session.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "base/stats_sequence.h"
#include "experiments/load/study.h"
#include "experiments/metrics/compare.h"

/* It is of whole cells or of several, never of the requests of one. */
static bool is_goodput(const struct job_headline *h)
{
    return strcmp(h->metric, "goodput_rps") == 0;
}

/* Goodput of one repeat: attainment against rate over its chosen cells, or over those
 * that these are relative to. */
static double goodput(const struct run_summary *s, const struct job_headline *h,
                      const bool *chosen, bool reference, int column, int64_t repeat)
{
    const struct job *j = s->job;
    double *rate = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*rate));
    double *met = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*met));
    double x = NAN, target = 0;
    size_t n = 0;

    for (int k = 0; k < j->n_cells; k++) {
        const json_t *settings = j->cells[k].settings;
        int i = k;

        if (!chosen[k] || j->cells[k].repeat - j->cells[0].repeat != repeat)
            continue;
        if (reference && (i = job_headline_reference(j, h, k)) < 0)
            continue;
        target = json_number_value(
            json_object_get(json_object_get(settings, "slo"), "target_frac"));
        rate[n] = json_number_value(
            json_object_get(json_object_get(settings, "load"), "rate_rps"));
        met[n++] = run_summary_value(s, i, column)->value;
    }
    if (n)
        x = metrics_goodput_rps(rate, met, n, target);
    mem_free(rate);
    mem_free(met);
    return x;
}

/* A cell's value, or its ratio to the value that the headline is relative to. */
static double value_of(const struct run_summary *s, const struct job_headline *h,
                       int cell, int column, char why[96])
{
    const struct metrics_value *at = run_summary_value(s, cell, column);
    double v = s->done[cell] ? at->value : NAN, by;
    int reference;

    if (isnan(v))
        memcpy(why, at->why, 96);
    if (isnan(v) || !h->relative_to)
        return v;
    reference = job_headline_reference(s->job, h, cell);
    if (reference < 0) {
        snprintf(why, 96, "no cell of this run has the settings that it is relative to");
        return NAN;
    }
    at = run_summary_value(s, reference, column);
    by = s->done[reference] ? at->value : NAN;
    if (isnan(by))
        memcpy(why, at->why, 96);
    else if (by == 0)
        snprintf(why, 96, "the value that it is relative to is 0");
    return by == 0 ? NAN : v / by;
}

static double aggregate(int over, const double *x, size_t n, char why[96])
{
    double v = NAN;

    switch (over) {
    case JOB_MEDIAN:
        return stats_median(x, n);
    case JOB_GEOMEAN:
        v = stats_geomean(x, n);
        if (isnan(v))
            snprintf(why, 96, "a geometric mean needs values above 0");
        return v;
    case JOB_MIN:
        return stats_min(x, n);
    case JOB_MAX:
        return stats_max(x, n);
    case JOB_SHARE:
        for (size_t i = 0; i < n; i++)
            if (x[i] != 0 && x[i] != 1) {
                snprintf(why, 96, "a share needs values of 0 or 1, found %g", x[i]);
                return NAN;
            }
        return stats_mean(x, n);
    case JOB_MEAN:
        return stats_mean(x, n);
    default:
        return stats_mean(x, n) * (double)n;
    }
}

/* The value of one setting: the median over its repeats, for ratios their geometric mean. NaN with
 * a reason spoils it, unless such repeats are left out; then NaN is for "none is left". */
static double over_repeats(const struct run_summary *s, const struct job_headline *h,
                           int setting, int column, double *x, size_t *n_left_out,
                           char why[96])
{
    const struct job *j = s->job;
    int n_settings = j->n_cells / (int)j->head.repeats, n = 0;
    bool spoilt = false;

    for (int i = setting; i < j->n_cells; i += n_settings) {
        double v = value_of(s, h, i, column, why);

        if (!isnan(v)) {
            x[n++] = v;
            continue;
        }
        *n_left_out += h->needs_finite;
        spoilt |= !h->needs_finite;
    }
    if (n == 0 || spoilt)
        return NAN;
    return h->relative_to ? aggregate(JOB_GEOMEAN, x, (size_t)n, why)
                          : stats_median(x, (size_t)n);
}

static double over_settings(const struct run_summary *s, const struct job_headline *h,
                            const bool *chosen, int column, double *x,
                            struct record_headline *out, char why[96])
{
    int n_settings = s->job->n_cells / (int)s->job->head.repeats;
    double *y = x + s->job->head.repeats; /* one a setting */
    double value;
    size_t n = 0;

    for (int k = 0; k < n_settings; k++) {
        if (!chosen[k]) /* the first repeat; the others have its settings */
            continue;
        y[n] = over_repeats(s, h, k, column, x, &out->n_left_out, why);
        if (!isnan(y[n]))
            n++;
        else if (!h->needs_finite)
            return NAN;
    }
    value = n ? aggregate(h->over, y, n, why) : NAN;
    if (h->over == JOB_SHARE && !isnan(value)) {
        out->has_interval = true;
        stats_wilson95((size_t)lround(value * (double)n), n, &out->lo, &out->hi);
    }
    return value;
}

/* --- searches on one ladder: what bounds a goodput bounds its ratio */

/* The cell's goodput; without an interval it is known exactly. */
static struct metrics_value goodput_of(const struct run_summary *s, int cell, int column)
{
    struct metrics_value v = {.value = NAN, .why = "no cell has the settings"};

    if (cell >= 0) {
        v = *run_summary_value(s, cell, column);
        if (!s->done[cell]) {
            v = (struct metrics_value){.value = NAN};
            snprintf(v.why, sizeof(v.why), "%.95s",
                     s->skipped[cell] ? s->skipped[cell] : "the cell failed");
        }
    }
    if (!v.has_interval)
        v.lo = v.hi = v.value;
    return v;
}

/* One cell's goodput, or its ratio to another's. */
static void between_bounds(const struct run_summary *s, const struct job_headline *h,
                           const bool *chosen, int column, struct record_headline *out,
                           char why[96])
{
    int cell = 0, of;
    struct metrics_value v, by = {.value = 1, .lo = 1, .hi = 1};

    while (!chosen[cell])
        cell++;
    of = h->relative_to ? job_headline_reference(s->job, h, cell) : -1;
    v = goodput_of(s, cell, column);
    if (h->relative_to)
        by = goodput_of(s, of, column);
    else
        of = cell;
    if (isnan(v.value) || isnan(by.value)) {
        const int missing = isnan(by.value) ? of : cell;
        const char *name =
            missing < 0 ? "" : json_str_at(s->job->cells[missing].axes, "variant", "");

        snprintf(why, 96, "%.20s%s%.70s", name, *name ? ": " : "",
                 isnan(by.value) ? by.why : v.why);
    }
    v.value /= by.value;
    metrics_bound(&v, v.lo / by.hi, v.hi / by.lo);
    out->value = v.value;
    out->has_interval = v.has_interval;
    out->lo = v.lo;
    out->hi = v.hi;
}

/* --- intervals */

/* By Student's t, of logarithms for a geometric mean. y[n], which are overwritten: what each
 * of n independent measurements came to. */
static void interval_of_mean(struct record_headline *out, bool geomean, double *y,
                             size_t n)
{
    double half;

    for (size_t i = 0; i < n && geomean; i++)
        y[i] = log(y[i]);
    half = stats_mean_half95(y, n);
    out->lo = geomean ? out->value * exp(-half) : out->value - half;
    out->hi = geomean ? out->value * exp(half) : out->value + half;
    out->has_interval = n > 1 && isfinite(out->lo) && isfinite(out->hi);
}

/* An option that this run does not sweep has no values to compare. */
static void over_axis(const struct run_summary *s, const struct job_headline *h,
                      const bool *chosen, int column, double *x,
                      struct record_headline *out)
{
    const struct job *j = s->job;
    bool *some = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*some));
    double *y = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*y));
    int a = 0;
    struct record_headline ignored = {0};
    size_t n = 0;
    char why[96];

    while (a < j->n_axes && strcmp(j->axes[a].name, h->interval) != 0 &&
           strcmp(j->axes[a].key, h->interval) != 0)
        a++;
    for (size_t k = 0; a < j->n_axes && k < json_array_size(j->axes[a].values); k++) {
        const json_t *v = json_array_get(j->axes[a].values, k);

        for (int i = 0; i < j->n_cells; i++)
            some[i] = chosen[i] &&
                      json_equal(json_object_get(j->cells[i].axes, j->axes[a].name), v);
        y[n] = over_settings(s, h, some, column, x, &ignored, why);
        n += !isnan(y[n]);
    }
    interval_of_mean(out, h->over == JOB_GEOMEAN, y, n);
    mem_free(y);
    mem_free(some);
}

/* The interval of a ratio: its cells and those that it is relative to are the two sides of a
 * comparison (compare.h), a restart for each repeat, in turn. */
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

static int interval_of_ratio(const struct run_summary *s, const struct job_headline *h,
                             const bool *chosen, int column, struct record_headline *out)
{
    size_t repeats = (size_t)s->job->head.repeats, n;
    struct compare_run *a = mem_new(MEM_HARNESS, repeats, sizeof(*a));
    struct compare_run *b = mem_new(MEM_HARNESS, repeats, sizeof(*b));
    const struct compare_opts o = {.metric = h->metric,
                                   .higher_is_better = h->better == 0,
                                   .in_turn = true,
                                   .paired = s->job->head.pairing == JOB_PAIRED_REQUESTS,
                                   .sequential = s->job->head.repeats_auto,
                                   .seed = 1};
    struct compare_result r;
    int rc = OK;

    n = fill_sides(a, b, s, h, chosen, column);
    if (n > 0)
        rc = compare_metric(&r, &(struct compare_side){a, n},
                            &(struct compare_side){b, n}, &o);
    if (n > 0 && rc == OK && r.n_pairs > 0)
        out->value = r.ratio;
    if (n > 0 && rc == OK && isfinite(r.lo) && isfinite(r.hi)) {
        out->has_interval = true;
        out->lo = r.lo;
        out->hi = r.hi;
    }
    mem_free(a);
    mem_free(b);
    return rc;
}

static double over_rates(const struct run_summary *s, const struct job_headline *h,
                         const bool *chosen, int column, double *x, char why[96])
{
    int64_t repeats = s->job->head.repeats;

    for (int64_t r = 0; r < repeats; r++) {
        x[r] = goodput(s, h, chosen, false, column, r);
        if (h->relative_to)
            x[r] /= goodput(s, h, chosen, true, column, r);
        if (isnan(x[r])) {
            snprintf(why, 96, "the lowest rate already misses the objective");
            return NAN;
        }
    }
    return stats_median(x, (size_t)repeats);
}

/* The value of the chosen cells, each of which has a value for each axis that matters. */
static double over_cells(const struct run_summary *s, const struct job_headline *h,
                         const bool *chosen, int column, double *x,
                         struct record_headline *out, char why[96])
{
    return job_is_swept_goodput(s->job, h->metric)
               ? over_rates(s, h, chosen, column, x, why)
               : over_settings(s, h, chosen, column, x, out, why);
}

/* --- repeats until the headline is known */

/* The headline of one repeat alone. */
static double of_repeat(const struct run_summary *s, const struct job_headline *h,
                        const bool *chosen, int column, int64_t repeat, double *x)
{
    int n = s->job->n_cells / (int)s->job->head.repeats, first = (int)repeat * n;
    struct record_headline ignored = {0};
    struct run_summary one = *s;
    struct job job = *s->job;
    char why[96];

    job.cells += first;
    job.n_cells = n;
    job.head.repeats = 1;
    one.job = &job;
    one.values += first * s->n_columns;
    one.done += first;
    return over_cells(&one, h, chosen + first, column, x, &ignored, why);
}

/* The precision of the searches of the chosen cells, the coarsest of them: two that end at the same
 * rate may still differ by as much. */
static double resolution(const struct job *j, const struct job_headline *h,
                         const bool *chosen)
{
    double widest = 0;

    for (int i = 0; i < j->n_cells && is_goodput(h); i++) {
        const json_t *search = json_object_get(j->cells[i].settings, "search");

        if (chosen[i] && j->cells[i].is_search)
            widest = fmax(widest, json_f64_at(search, "precision_frac"));
    }
    return widest;
}

/* The geometric mean over the repeats, each of which gives a number, with its interval: a
 * confidence sequence where the run ended by what it showed. Numbers that are not all above 0 have
 * no logarithm: theirs is the plain mean. */
static int over_each_repeat(const struct run_summary *s, const struct job_headline *h,
                            const bool *chosen, int column, double *x,
                            struct record_headline *out)
{
    size_t n = (size_t)s->job->head.repeats;
    double *y = mem_new(MEM_HARNESS, n, sizeof(*y)), mean, half;
    bool equal = true, positive = true;

    for (size_t r = 0; r < n; r++) {
        y[r] = of_repeat(s, h, chosen, column, (int64_t)r, x);
        equal = equal && y[r] == y[0];
        positive = positive && y[r] > 0;
    }
    mean = y[0];
    for (size_t r = 0; r < n && positive && !equal; r++)
        y[r] = log(y[r]);
    half = equal                       ? 0
           : s->job->head.repeats_auto ? stats_sequence_half95(y, n)
                                       : stats_mean_half95(y, n);
    if (positive && isfinite(half))
        half = fmax(half, log1p(resolution(s->job, h, chosen)));
    if (!equal)
        mean = positive ? exp(stats_mean(y, n)) : stats_mean(y, n);
    mem_free(y);
    out->has_interval = isfinite(half);
    if (!isnan(mean))
        out->value = mean;
    out->lo = positive ? out->value * exp(-half) : out->value - half;
    out->hi = positive ? out->value * exp(half) : out->value + half;
    return OK;
}

/* Join the evidence of the chosen cells, each kind once. */
static void join_evidence(const struct run_summary *s, const bool *chosen, int column,
                          char out[96])
{
    for (int kind = 0; metrics_evidence[kind]; kind++) {
        bool there = false;
        size_t n = strlen(out);

        for (int i = 0; i < s->job->n_cells; i++)
            there |= chosen[i] &&
                     run_summary_value(s, i, column)->evidence == metrics_evidence[kind];
        if (there)
            snprintf(out + n, 96 - n, "%s%s", n ? ", " : "", metrics_evidence[kind]);
    }
}

/* Keep the interval of the one chosen cell, where the headline is its value. */
static void keep_interval(const struct run_summary *s, const bool *chosen, int column,
                          struct record_headline *out)
{
    const struct metrics_value *v = run_summary_value(s, 0, column);

    while (!*chosen++)
        v += s->n_columns;
    out->has_interval = v->has_interval && v->value == out->value;
    out->lo = v->lo;
    out->hi = v->hi;
}

/* The value of the chosen cells and its interval. */
static int combine(const struct run_summary *s, const struct job_headline *h,
                   const bool *chosen, int n_chosen, int column, double *x,
                   struct record_headline *out, char why[96])
{
    const struct job *j = s->job;
    bool is_ratio;

    if (j->head.pairing == JOB_PAIRED_RATES && is_goodput(h) && n_chosen == 1) {
        between_bounds(s, h, chosen, column, out, why);
        return OK;
    }
    out->value = over_cells(s, h, chosen, column, x, out, why);
    if (isnan(out->value))
        return OK;
    if (j->head.repeats_auto)
        TRY(over_each_repeat(s, h, chosen, column, x, out));
    is_ratio = h->relative_to && h->over == JOB_MEDIAN;
    if (is_ratio && !is_goodput(h))
        return interval_of_ratio(s, h, chosen, column, out);
    if (is_ratio && j->head.repeats > 1 && !j->head.repeats_auto)
        return over_each_repeat(s, h, chosen, column, x, out);
    if (h->interval && !j->head.repeats_auto)
        over_axis(s, h, chosen, column, x, out);
    else if (n_chosen == 1 && !h->relative_to && !out->has_interval &&
             !j->head.repeats_auto)
        keep_interval(s, chosen, column, out);
    if (!out->has_interval && j->head.repeats > 1)
        return over_each_repeat(s, h, chosen, column, x, out);
    return OK;
}

/* --- the A/A */

/* The same ratio of the variant that runs twice to itself, by the same rule. */
static int interval_of_again(const struct run_summary *s, const struct job_headline *h,
                             int column, double *x, struct record_headline *out)
{
    const struct job *j = s->job;
    bool *chosen = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*chosen));
    struct job_headline again = *h;
    int rc = OK, n;

    again.where = json_copy(h->where);
    json_object_set_new(again.where, "variant", json_string(j->again));
    again.relative_to = json_pack("{s:s}", "variant", j->head.aa);
    n = job_headline_cells(j, &again, chosen);
    if (n == 1 && j->head.pairing == JOB_PAIRED_RATES && is_goodput(h))
        between_bounds(s, &again, chosen, column, out, (char[96]){0});
    else if (n > 0 && h->over == JOB_MEDIAN && !is_goodput(h))
        rc = interval_of_ratio(s, &again, chosen, column, out);
    else if (n > 0)
        rc = over_each_repeat(s, &again, chosen, column, x, out);
    json_decref(again.where);
    json_decref(again.relative_to);
    mem_free(chosen);
    return rc;
}

/* Find the smallest difference that the A/A of a ratio to a variant, or of a ratio that a study
 * measures, could have shown. */
static int find_detectable(const struct run_summary *s, const struct job_headline *h,
                           const bool *chosen, int n_chosen, int column, double *x,
                           struct record_headline *out)
{
    const struct job *j = s->job;
    struct record_headline aa = {.value = NAN};
    char why[96];

    if (j->study && !h->relative_to && study_aa_find(j->study, h->metric)) {
        TRY(combine(s, h, chosen, n_chosen, column + j->n_headlines, x, &aa, why));
        if (!aa.has_interval) /* such as the least of several */
            aa.lo = aa.hi = aa.value;
        aa.has_interval = !isnan(aa.value);
    } else if (j->head.aa && json_object_get(h->relative_to, "variant")) {
        out->detectable_why = !j->again ? "the variant of the A/A does not run"
                              : j->head.repeats + j->head.pairing < 2
                                  ? "an A/A needs two repeats"
                                  : NULL;
        if (!out->detectable_why)
            TRY(interval_of_again(s, h, column, x, &aa));
    } else {
        return OK;
    }
    out->has_detectable = aa.has_interval && isfinite(aa.lo) && isfinite(aa.hi);
    if (out->has_detectable)
        out->detectable_frac = stats_detectable_frac(aa.lo, aa.hi);
    else if (!out->detectable_why)
        out->detectable_why = "the A/A has no interval";
    return OK;
}

int run_headline(struct run_summary *s, int k)
{
    const struct job *j = s->job;
    const struct job_headline *h = &j->headlines[k];
    struct record_headline *out = &s->headlines[k];
    bool *chosen = mem_new(MEM_HARNESS, (size_t)j->n_cells, sizeof(*chosen));
    double *x = mem_new(MEM_HARNESS, (size_t)(j->n_cells + j->head.repeats), sizeof(*x));
    char *why = s->headline_whys[k];
    const struct job_axis *open;
    int column = s->n_shown + k, n_chosen, rc = OK;

    *out =
        (struct record_headline){.name = h->name,
                                 .unit = h->unit          ? h->unit
                                         : h->relative_to ? "x"
                                                          : job_metric_unit(j, h->metric),
                                 .better = h->better ? "lower" : "higher",
                                 .value = NAN};
    n_chosen = job_headline_cells(j, h, chosen);
    if (n_chosen == 0)
        snprintf(why, 96, "no cell of this run has the settings it names");
    else if (h->over == JOB_MEDIAN && (open = job_headline_open_axis(j, h, chosen)))
        snprintf(why, 96, "which %.40s? name it in \"where\", or set \"over\"",
                 open->name);
    else
        rc = combine(s, h, chosen, n_chosen, column, x, out, why);
    out->why = isnan(out->value) ? why : NULL;
    join_evidence(s, chosen, column, s->headline_evidence[k]);
    out->evidence = s->headline_evidence[k][0] ? s->headline_evidence[k] : NULL;
    if (rc == OK && !isnan(out->value))
        rc = find_detectable(s, h, chosen, n_chosen, column, x, out);
    mem_free(chosen);
    mem_free(x);
    return rc;
}
