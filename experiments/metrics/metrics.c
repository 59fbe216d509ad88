#include "experiments/metrics/metrics.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "base/stats.h"
#include "measure/card.h"

/* The statistics as which a distribution is published. q = 0: not a percentile. */
static const struct statistic {
    const char *prefix;
    double q;
    double (*of)(const double *x, size_t n);
} statistics[] = {
    {"mean_", 0, stats_mean}, {"std_", 0, stats_std},  {"min_", 0, stats_min},
    {"p50_", 0.5, NULL},      {"p90_", 0.9, NULL},     {"p95_", 0.95, NULL},
    {"p99_", 0.99, NULL},     {"p99.9_", 0.999, NULL}, {"max_", 0, stats_max},
};
#define N_STATISTICS (sizeof(statistics) / sizeof(statistics[0]))

const char *const metrics_evidence[] = {
    "measured", "measured_small", "model",       "simulated",
    "emulated", "published",      "unavailable", NULL};

const char *metrics_evidence_find(const char *name)
{
    int i = name ? name_index(metrics_evidence, name) : -1;

    return i < 0 ? NULL : metrics_evidence[i];
}

const char *metrics_status_name(enum metrics_status s)
{
    static const char *const names[] = {"ok", "failed", "timeout", "rejected"};

    return names[s];
}

/* How many values a definition is published as. */
static size_t n_values(const struct metrics_def *d)
{
    return d->samples ? N_STATISTICS : 1;
}

static size_t n_published(void)
{
    size_t n = 0;

    for (const struct metrics_def *d = metrics_defs; d->name; d++)
        n += n_values(d);
    return n;
}

static void add(struct metrics *m, const char *prefix, const struct metrics_def *d,
                double x, const char *why)
{
    struct metrics_value *v = &m->values[m->n_values++];

    snprintf(v->name, sizeof(v->name), "%s%s", prefix, d->name);
    snprintf(v->unit, sizeof(v->unit), "%s", d->unit);
    v->value = isfinite(x) ? x : NAN;
    if (!isfinite(x))
        snprintf(v->why, sizeof(v->why), "%s", why[0] ? why : "undefined");
}

static void add_statistic(struct metrics *m, const struct metrics_def *d,
                          const struct statistic *s, const double *x, size_t n)
{
    char why[96] = "no sample";
    size_t floor_n = s->q > 0 ? stats_percentile_floor(s->q) : 1;

    if (n == 1 && s->of == stats_std)
        snprintf(why, sizeof(why), "one sample has no spread");
    if (n > 0 && n < floor_n) {
        snprintf(why, sizeof(why), "n=%zu < %zu", n, floor_n);
        add(m, s->prefix, d, NAN, why);
        return;
    }
    add(m, s->prefix, d, s->q > 0 ? stats_percentile(x, n, s->q) : s->of(x, n), why);
}

static void add_distribution(struct metrics *m, const struct metrics_def *d,
                             const struct metrics_work *w)
{
    size_t n = d->samples(w, NULL);
    double *x = mem_new(MEM_HARNESS, n, sizeof(*x));

    d->samples(w, x);
    for (size_t i = 0; i < N_STATISTICS; i++)
        add_statistic(m, d, &statistics[i], x, n);
    mem_free(x);
}

/* Only requests that reached the system can overlap there. */
static bool served_together(const struct metrics_row *a, const struct metrics_row *b)
{
    return a->dispatch_ns != METRICS_NEVER && b->dispatch_ns != METRICS_NEVER &&
           b->dispatch_ns < a->done_ns && a->dispatch_ns < b->done_ns;
}

static void sort_rows(struct metrics_work *w)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    const struct metrics_row *longest = NULL;

    for (size_t i = 0; i < w->in->n_rows; i++) {
        const struct metrics_row *r = &w->in->rows[i];

        /* Rows come in the order of dispatch: the one that ends last so far decides. */
        if (longest && served_together(longest, r))
            w->overlapped = true;
        if (r->dispatch_ns != METRICS_NEVER &&
            (!longest || r->done_ns > longest->done_ns))
            longest = r;
        if (r->warmup)
            continue;
        w->measured[w->n_measured++] = r;
        if (r->status == METRICS_OK)
            w->ok[w->n_ok++] = r;
        first = r->intended_ns < first ? r->intended_ns : first;
        last = r->done_ns > last ? r->done_ns : last;
    }
    w->duration_s = w->n_measured ? (double)(last - first) / 1e9 : NAN;
}

/* The definition that `name` is published from; NULL: none. *s: its statistic, NULL for a single
 * number. */
static const struct metrics_def *definition(const char *name, const struct statistic **s)
{
    char full[64];

    for (const struct metrics_def *d = metrics_defs; d->name; d++)
        for (size_t i = 0; i < n_values(d); i++) {
            *s = d->samples ? &statistics[i] : NULL;
            snprintf(full, sizeof(full), "%s%s", *s ? (*s)->prefix : "", d->name);
            if (strcmp(full, name) == 0)
                return d;
        }
    *s = NULL;
    for (const struct metrics_def *d = metrics_goodput_defs; d->name; d++)
        if (strcmp(d->name, name) == 0)
            return d;
    return NULL;
}

static double one_statistic(const struct metrics_work *w, const struct metrics_def *d,
                            const struct statistic *s)
{
    size_t n = d->samples(w, NULL);
    double *x = mem_new(MEM_HARNESS, n, sizeof(*x)), out;

    d->samples(w, x);
    if (s->q > 0)
        out = n >= stats_percentile_floor(s->q) ? stats_percentile(x, n, s->q) : NAN;
    else
        out = s->of(x, n);
    mem_free(x);
    return out;
}

int metrics_one(double *out, const struct metrics_input *in, const char *name)
{
    struct metrics_work w = {.in = in};
    const struct statistic *s;
    const struct metrics_def *d = definition(name, &s);
    const char *why = "";
    int rc = d ? OK : metrics_known(name);

    *out = NAN;
    if (rc != OK)
        return rc;
    w.ok = mem_new(MEM_HARNESS, in->n_rows, sizeof(*w.ok));
    w.measured = mem_new(MEM_HARNESS, in->n_rows, sizeof(*w.measured));
    sort_rows(&w);
    if (s)
        *out = one_statistic(&w, d, s);
    else
        *out = d->scalar ? d->scalar(&w, &why) : NAN; /* NULL: of a search */
    mem_free(w.ok);
    mem_free(w.measured);
    return OK;
}

/* The array of a new series. */
static double *add_series(struct metrics *m, const char *name, const char *unit, size_t n)
{
    struct metrics_series *s = &m->series[m->n_series++];

    s->v = mem_new(MEM_HARNESS, n, sizeof(double));
    snprintf(s->name, sizeof(s->name), "%s", name);
    snprintf(s->unit, sizeof(s->unit), "%s", unit);
    s->n = n;
    return s->v;
}

static void add_slo_scale(struct metrics *m, const struct metrics_work *w)
{
    const struct metrics_slo *slo = &w->in->slo;
    double *x, *y;

    if (slo->n_scale == 0 || w->n_measured == 0)
        return;
    x = add_series(m, "slo_scale", "", (size_t)slo->n_scale);
    y = add_series(m, "slo_attainment_frac", "", (size_t)slo->n_scale);
    for (int k = 0; k < slo->n_scale; k++) {
        x[k] = slo->scale[k];
        for (size_t i = 0; i < w->n_measured; i++)
            y[k] += metrics_slo_met(w->measured[i], slo, slo->scale[k]);
        y[k] /= (double)w->n_measured;
    }
}

/* The readings, from which anybody can compute the numbers again. */
static void add_energy(struct metrics *m, const struct metrics_input *in)
{
    const size_t n = in->n_energy;

    if (n == 0)
        return;
    memcpy(add_series(m, "energy_s", "s", n), in->energy_s, n * sizeof(double));
    memcpy(add_series(m, "energy_joules", "J", n), in->energy_joules, n * sizeof(double));
}

void metrics_compute(struct metrics *out, const struct metrics_input *in)
{
    struct metrics_work w = {.in = in};

    *out = (struct metrics){0};
    w.ok = mem_new(MEM_HARNESS, in->n_rows, sizeof(*w.ok));
    w.measured = mem_new(MEM_HARNESS, in->n_rows, sizeof(*w.measured));
    out->values = mem_new(MEM_HARNESS, n_published(), sizeof(*out->values));
    sort_rows(&w);
    for (const struct metrics_def *d = metrics_defs; d->name; d++) {
        const char *why = "";

        if (d->samples) {
            add_distribution(out, d, &w);
        } else {
            double x = d->scalar(&w, &why);

            add(out, "", d, x, why);
        }
    }
    assert(out->n_values == n_published());
    add_slo_scale(out, &w);
    add_energy(out, in);
    if (in->turn_s)
        memcpy(add_series(out, "turn_s", "s", in->n_rows), in->turn_s,
               in->n_rows * sizeof(double));
    mem_free(w.ok);
    mem_free(w.measured);
}

void metrics_fini(struct metrics *m)
{
    mem_free(m->values);
    for (size_t i = 0; i < m->n_series; i++)
        mem_free(m->series[i].v);
    *m = (struct metrics){0};
}

const struct metrics_value *metrics_find(const struct metrics *m, const char *name)
{
    for (size_t i = 0; i < m->n_values; i++)
        if (strcmp(m->values[i].name, name) == 0)
            return &m->values[i];
    return NULL;
}

/* A system that ends fewer than this share of what comes does not keep up. */
#define KEEPS_UP_FRAC 0.95

static double number(const struct metrics *m, const char *name)
{
    const struct metrics_value *v = metrics_find(m, name);

    return v ? v->value : NAN;
}

bool metrics_overloaded(const struct metrics *m, struct metrics_overload *out)
{
    double offered = number(m, "offered_rate_rps");
    double achieved = number(m, "achieved_rate_rps");
    double growth = number(m, "backlog_growth"), n = number(m, "n_requests");

    if (!(growth > sqrt(n)))
        return false;
    out->observed = achieved;
    out->threshold = KEEPS_UP_FRAC * offered;
    snprintf(out->text, sizeof(out->text),
             "%.3g requests a second came and %.3g ended; the backlog grew by "
             "%.3g of %.0f",
             offered, achieved, growth, n);
    if (achieved < KEEPS_UP_FRAC * offered)
        return true;
    out->observed = growth;
    out->threshold = fmax(sqrt(n), (1 - KEEPS_UP_FRAC) * n);
    return growth > out->threshold;
}

void metrics_row_move(struct metrics_row *r, int64_t by_ns, int64_t *token_ns)
{
    int64_t *const times[] = {&r->intended_ns, &r->dispatch_ns, &r->first_token_ns,
                              &r->done_ns};

    for (int i = 0; i < 4; i++)
        *times[i] += *times[i] == METRICS_NEVER ? 0 : by_ns;
    for (int64_t t = 0; t < r->n_tok; t++)
        token_ns[t] = r->token_ns[t] + by_ns;
    r->token_ns = token_ns;
}

double metrics_goodput_rps(const double *rate_rps, const double *attainment, size_t n,
                           double target)
{
    double lowest_bad = INFINITY, best = NAN;

    for (size_t i = 0; i < n; i++)
        if (!(attainment[i] >= target) && rate_rps[i] < lowest_bad)
            lowest_bad = rate_rps[i];
    for (size_t i = 0; i < n; i++)
        if (rate_rps[i] < lowest_bad && !(rate_rps[i] <= best))
            best = rate_rps[i];
    return best;
}

#define MAX_NAMES 256

int metrics_known(const char *name)
{
    static __thread char text[MAX_NAMES][48];
    const char *words[MAX_NAMES + METRICS_N_GOODPUT + 1];
    size_t n = 0;

    for (const struct metrics_def *d = metrics_defs; d->name; d++)
        for (size_t i = 0; i < n_values(d); i++, n++) {
            assert(n < MAX_NAMES);
            snprintf(text[n], sizeof(text[n]), "%s%s",
                     d->samples ? statistics[i].prefix : "", d->name);
            words[n] = text[n];
            if (strcmp(text[n], name) == 0)
                return OK;
        }
    for (const struct metrics_def *d = metrics_goodput_defs; d->name; d++) {
        words[n++] = d->name;
        if (strcmp(d->name, name) == 0)
            return OK;
    }
    words[n] = NULL;
    return name_unknown(ERR_NOTFOUND, name, words, "no metric \"%s\"", name);
}

const char *metrics_unit(const char *name)
{
    const struct statistic *s;
    const struct metrics_def *d = definition(name, &s);

    return d ? d->unit : "";
}

/* A rate of requests is of several, and 0 where one misses an objective. */
bool metrics_is_of_request(const char *name)
{
    const char *unit = metrics_unit(name);

    return strncmp(name, "mean_", 5) == 0 || strncmp(name, "p50_", 4) == 0 ||
           (strchr(unit, '/') && strncmp(unit, "req", 3) != 0);
}

bool metrics_exceeds_bound(const char *name, const char *unit, double value, char why[96])
{
    static const char *const shares[] = {"bandwidth_frac", "peak_frac", "roof_frac",
                                         "roofline_frac", "_bound_frac"};

    if (*unit || !(value > MEASURE_SHARE_MAX))
        return false;
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
        if (strstr(name, shares[i])) {
            snprintf(why, 96, "%.4g of its bound, above %g: the bound is wrong", value,
                     MEASURE_SHARE_MAX);
            return true;
        }
    return false;
}

static void print_defs(const struct metrics_def *d, FILE *f)
{
    for (; d->name; d++)
        fprintf(f, "| %s%s%s | %s | %s | %s |\n", d->samples ? "*" : "`", d->name,
                d->samples ? "*" : "`", d->unit, d->better, d->text);
}

void metrics_docs(FILE *f)
{
    fprintf(f, "| metric | unit | better | definition |\n|---|---|---|---|\n");
    print_defs(metrics_defs, f);
    print_defs(metrics_goodput_defs, f);
    fprintf(f, "\nA distribution (*italic*) is published as");
    for (size_t i = 0; i < N_STATISTICS; i++)
        fprintf(f, "%s `%s`", i ? "," : "", statistics[i].prefix);
    fprintf(
        f,
        " + name. Percentiles use the nearest rank ceil(q n) and need a minimum number\n"
        "of samples (p95 %zu, p99 %zu, p99.9 %zu). Statistics are over the completed, "
        "measured requests;\nattainment and counts over all measured requests.\n",
        stats_percentile_floor(0.95), stats_percentile_floor(0.99),
        stats_percentile_floor(0.999));
}
