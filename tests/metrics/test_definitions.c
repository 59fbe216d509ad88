/* Every metric of random rows is what its text says, computed here once more without the rows'
 * order or any sum that is shared, and one at a time it is the same. Times are small whole
 * milliseconds, so that they are often equal. */
#include "tests/metrics/rows.h"

#define ROWS_MAX 24
#define TOK_MAX  5

#define EACH(r)                                                                          \
    for (const struct metrics_row *r = in->rows; r < in->rows + in->n_rows; r++)
#define MEASURED(r) EACH(r) if (!r->warmup)
#define ANSWERED(r) EACH(r) if (!r->warmup && r->status == METRICS_OK)

static double ms(int64_t ns)
{
    return (double)ns / 1e6;
}

static int64_t last_token(const struct metrics_row *r)
{
    return r->token_ns[r->n_tok - 1];
}

static double share(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

/* ---- distributions */

static double scale_of(const struct metrics_row *r, const struct metrics_slo *slo)
{
    double x = 0;

    if (r->status != METRICS_OK)
        return INFINITY;
    if (slo->ttft_ms > 0)
        x = ms(r->first_token_ns - r->intended_ns) / slo->ttft_ms;
    if (slo->tpot_ms > 0 && r->n_tok > 1)
        x = fmax(x, ms(last_token(r) - r->first_token_ns) / (double)(r->n_tok - 1) /
                        slo->tpot_ms);
    return x;
}

/* -1: not a distribution. */
static int samples(const struct metrics_input *in, const char *name, double *x)
{
    bool is_tpot = strcmp(name, "tpot_ms") == 0, is_e2e = strcmp(name, "e2e_ms") == 0;
    bool is_service = strcmp(name, "ttft_service_ms") == 0;
    int n = 0;

    if (strcmp(name, "ttft_ms") == 0 || is_service || is_tpot || is_e2e) {
        ANSWERED(r)
        {
            int64_t to = is_tpot || is_e2e ? last_token(r) : r->first_token_ns;
            int64_t from = is_tpot      ? r->first_token_ns
                           : is_service ? r->dispatch_ns
                                        : r->intended_ns;

            if (!is_tpot || r->n_tok > 1)
                x[n++] = ms(to - from) / (is_tpot ? (double)(r->n_tok - 1) : 1);
        }
    } else if (strcmp(name, "itl_ms") == 0) {
        ANSWERED(r)
        for (int64_t t = 0; t < r->n_tok - 1; t++)
            x[n++] = ms(r->token_ns[t + 1] - r->token_ns[t]);
    } else if (strcmp(name, "lateness_ms") == 0) {
        MEASURED(r)
        if (r->dispatch_ns != METRICS_NEVER)
            x[n++] = ms(r->dispatch_ns - r->intended_ns);
    } else if (strcmp(name, "slo_scale") == 0) {
        if (in->slo.ttft_ms > 0 || in->slo.tpot_ms > 0) {
            MEASURED(r)
            x[n++] = scale_of(r, &in->slo);
        }
    } else if (strcmp(name, "timer_error_us") == 0) {
        for (size_t i = 0; i < in->n_timer_error; i++)
            x[n++] = in->timer_error_us[i];
    } else {
        return -1;
    }
    return n;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double statistic(const char *prefix, double *x, int n)
{
    static const struct {
        const char *prefix;
        double q;
        int least;
    } percentiles[] = {{"p50_", 0.5, 1},
                       {"p90_", 0.9, 1},
                       {"p95_", 0.95, 72},
                       {"p99_", 0.99, 368},
                       {"p99.9_", 0.999, 3688}};
    double mean = 0, squares = 0;

    if (n == 0)
        return NAN;
    qsort(x, (size_t)n, sizeof(*x), by_size);
    for (int i = 0; i < n; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    if (strcmp(prefix, "mean_") == 0)
        return mean;
    if (strcmp(prefix, "std_") == 0)
        return n > 1 ? sqrt(squares / (n - 1)) : NAN;
    if (strcmp(prefix, "min_") == 0)
        return x[0];
    if (strcmp(prefix, "max_") == 0)
        return x[n - 1];
    for (int k = 0; k < 5; k++)
        if (strcmp(prefix, percentiles[k].prefix) == 0)
            return n < percentiles[k].least
                       ? NAN
                       : x[(int)ceil(percentiles[k].q * n - 1e-9) - 1];
    fail_msg("statistic %s", prefix);
    return 0;
}

/* ---- single numbers */

static bool overlapped(const struct metrics_input *in)
{
    EACH(a)
    EACH(b)
    if (a != b && a->dispatch_ns != METRICS_NEVER && b->dispatch_ns != METRICS_NEVER &&
        a->dispatch_ns < b->done_ns && b->dispatch_ns < a->done_ns)
        return true;
    return false;
}

static double n_met(const struct metrics_input *in, double ttft_ms, double tpot_ms)
{
    const struct metrics_slo slo = {.ttft_ms = ttft_ms, .tpot_ms = tpot_ms};
    double n = 0;

    MEASURED(r)
    n += scale_of(r, &slo) <= 1;
    return n;
}

static double attainment(const struct metrics_input *in, double ttft_ms, double tpot_ms)
{
    double n = 0;

    MEASURED(r)
    n++;
    return ttft_ms > 0 || tpot_ms > 0 ? share(n_met(in, ttft_ms, tpot_ms), n) : NAN;
}

/* (n - 1) / (last - first); NaN where there are not two times. */
static double rate(const int64_t *t, int n)
{
    int64_t first = INT64_MAX, last = INT64_MIN;

    for (int i = 0; i < n; i++) {
        first = t[i] < first ? t[i] : first;
        last = t[i] > last ? t[i] : last;
    }
    return n < 2 ? NAN : share(n - 1, (double)(last - first) / 1e9);
}

/* Mean number of requests that came and did not end, from `from` to `to`: that of each of the
 * thousandths of a millisecond would do; between two events it is constant. */
static double backlog(const struct metrics_input *in, double from, double to)
{
    double sum = 0;

    MEASURED(r)
    {
        bool ends = r->status == METRICS_OK || r->status == METRICS_FAILED;
        double lo = (double)r->intended_ns, hi = ends ? (double)r->done_ns : to;

        lo = lo > from ? lo : from;
        hi = hi < to ? hi : to;
        sum += hi > lo ? hi - lo : 0;
    }
    return sum / (to - from);
}

struct sums {
    double n, n_ok, prompt, output, service_s, flop, n_decoded, decode_tok, decode_s,
        bytes, n_fast, worst_ms, stay_ns;
    int64_t first, last, came[ROWS_MAX], ended[ROWS_MAX];
    int n_came, n_ended;
};

static struct sums sums_of(const struct metrics_input *in)
{
    struct sums s = {.first = INT64_MAX, .last = INT64_MIN};

    MEASURED(r)
    {
        s.n++;
        s.first = r->intended_ns < s.first ? r->intended_ns : s.first;
        s.last = r->done_ns > s.last ? r->done_ns : s.last;
        s.stay_ns += (double)(r->done_ns - r->intended_ns);
        s.came[s.n_came++] = r->intended_ns;
        if (r->status == METRICS_OK || r->status == METRICS_FAILED)
            s.ended[s.n_ended++] = r->done_ns;
    }
    ANSWERED(r)
    {
        double decode_s = (double)(last_token(r) - r->first_token_ns) / 1e9, sum_ms = 0;

        s.n_ok++;
        s.prompt += (double)r->n_prompt_tok;
        s.output += (double)r->n_tok;
        s.service_s += (double)(r->first_token_ns - r->dispatch_ns) / 1e9;
        s.flop += r->prefill_flop;
        for (int64_t t = 1; t < r->n_tok; t++)
            sum_ms += fabs(ms(r->token_ns[t] - r->token_ns[t - 1]));
        s.worst_ms =
            fmax(s.worst_ms, fabs(ms(last_token(r) - r->first_token_ns) - sum_ms));
        if (r->n_tok < 2)
            continue;
        s.n_decoded++;
        s.decode_tok += (double)(r->n_tok - 1);
        s.decode_s += decode_s;
        s.bytes += r->decode_bytes;
        s.n_fast += decode_s * 1e3 < r->decode_bytes / 1e6 / in->read_gbps - 1e-9;
    }
    return s;
}

static double n_of(const struct metrics_input *in, enum metrics_status status)
{
    double n = 0;

    MEASURED(r)
    n += r->status == status;
    return n;
}

static double backlog_growth(const struct metrics_input *in, const struct sums *s)
{
    double from = INFINITY, to = -INFINITY, quarter;

    if (isnan(rate(s->came, s->n_came)))
        return NAN;
    for (int i = 0; i < s->n_came; i++) {
        from = fmin(from, (double)s->came[i]);
        to = fmax(to, (double)s->came[i]);
    }
    quarter = (to - from) / 4;
    return backlog(in, to - quarter, to) - backlog(in, from, from + quarter);
}

/* False: this file has no definition of it. */
static bool single(const struct metrics_input *in, const char *name, double *out)
{
    const struct sums s = sums_of(in);
    const double ttft = in->slo.ttft_ms, tpot = in->slo.tpot_ms;
    double duration_s = s.n > 0 ? (double)(s.last - s.first) / 1e9 : NAN;
    bool together = overlapped(in);
    double read = together ? NAN : share(s.bytes / 1e9, s.decode_s);
    double bandwidth = share(read, in->read_gbps);
    double prefill = together ? NAN : share(s.prompt, s.service_s);
    double gflops = together ? NAN : share(s.flop / 1e9, s.service_s);
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"n_requests", s.n},
        {"n_completed", s.n_ok},
        {"n_failed", n_of(in, METRICS_FAILED)},
        {"n_timeout", n_of(in, METRICS_TIMEOUT)},
        {"n_rejected", n_of(in, METRICS_REJECTED)},
        {"error_frac", share(s.n - s.n_ok, s.n)},
        {"input_tok", s.prompt},
        {"output_tok", s.output},
        {"duration_s", duration_s},
        {"offered_rate_rps", rate(s.came, s.n_came)},
        {"achieved_rate_rps", rate(s.ended, s.n_ended)},
        {"backlog_growth", backlog_growth(in, &s)},
        {"request_throughput_rps", share(s.n_ok, duration_s)},
        {"output_throughput_tok_s", share(s.output, duration_s)},
        {"total_throughput_tok_s", share(s.prompt + s.output, duration_s)},
        {"slo_attainment_frac", attainment(in, ttft, tpot)},
        {"ttft_attainment_frac", attainment(in, ttft, 0)},
        {"tpot_attainment_frac", attainment(in, 0, tpot)},
        {"request_goodput_rps", isnan(attainment(in, ttft, tpot))
                                    ? NAN
                                    : share(n_met(in, ttft, tpot), duration_s)},
        {"decode_tok_s", share(s.decode_tok, s.decode_s)},
        {"decode_read_gbps", read},
        {"decode_bandwidth_frac", bandwidth},
        {"tpot_below_bound_frac", isnan(bandwidth) ? NAN : share(s.n_fast, s.n_decoded)},
        {"prefill_tok_s", prefill},
        {"prefill_gflops", gflops},
        {"prefill_peak_frac", share(gflops, in->peak_gflops)},
        {"joules_per_tok", NAN}, /* with readings: test_energy.c */
        {"prefill_joules_per_tok", NAN},
        {"decode_joules_per_tok", NAN},
        {"identity_e2e_error_ms", s.n_ok > 0 ? s.worst_ms : NAN},
        {"little_l", s.n > 0 ? share(s.stay_ns, (double)(s.last - s.first)) : NAN},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(name, all[i].name) == 0) {
            *out = all[i].value;
            return true;
        }
    return false;
}

/* ---- rows */

struct made {
    struct metrics_row rows[ROWS_MAX];
    int64_t token_ns[ROWS_MAX][TOK_MAX];
};

static int64_t some_ms(struct rng *r, int n)
{
    return (int64_t)rng_below(r, (uint64_t)n) * MS;
}

/* In the order of dispatch, as the harness keeps them. `alone`: none before the last has ended. */
static void make_rows(struct made *m, int n, bool alone, struct rng *rng)
{
    int64_t at = some_ms(rng, 3), free_at = 0;

    for (int i = 0; i < n; i++) {
        struct metrics_row *r = &m->rows[i];
        int64_t t;

        at += some_ms(rng, 4);
        at = alone && at < free_at ? free_at : at;
        *r = (struct metrics_row){.request = i,
                                  .warmup = rng_below(rng, 8) == 0,
                                  .intended_ns = at - some_ms(rng, 3),
                                  .dispatch_ns = at,
                                  .n_prompt_tok = 1 + (int64_t)rng_below(rng, 9),
                                  .token_ns = m->token_ns[i],
                                  .decode_bytes = 1e6 * (double)rng_below(rng, 9),
                                  .prefill_flop = 1e6 * (double)(1 + rng_below(rng, 9))};
        if (rng_below(rng, 3) == 0)
            r->status = (enum metrics_status)rng_below(rng, 4);
        if (r->status == METRICS_REJECTED) {
            r->done_ns = r->intended_ns;
            r->dispatch_ns = r->first_token_ns = METRICS_NEVER;
            continue;
        }
        r->n_tok = 1 + (int64_t)rng_below(rng, TOK_MAX);
        t = at + MS + some_ms(rng, 3);
        for (int64_t k = 0; k < r->n_tok; k++, t += some_ms(rng, 3))
            m->token_ns[i][k] = t;
        if (r->n_tok == 3 && rng_below(rng, 3) == 0) /* broken times */
            m->token_ns[i][1] += 3 * MS;
        r->first_token_ns = m->token_ns[i][0];
        r->done_ns = last_token(r) + some_ms(rng, 2);
        free_at = r->done_ns;
    }
}

static void same(double got, double want, const char *name, int round)
{
    if (!(isnan(want) ? isnan(got)
                      : got == want || fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("TEST_SEED=%llu round %d: %s is %.12g, expected %.12g",
                 (unsigned long long)test_seed(), round, name, got, want);
}

static void check_def(const struct metrics_input *in, const struct metrics *m,
                      const struct metrics_def *d, int round)
{
    static const char *const prefixes[] = {"mean_", "std_", "min_",   "p50_", "p90_",
                                           "p95_",  "p99_", "p99.9_", "max_"};
    double x[ROWS_MAX * TOK_MAX], value = NAN;
    int n = samples(in, d->name, x);

    if (n < 0 && !single(in, d->name, &value)) {
        if (round == 0)
            print_message("# no second definition of %s\n", d->name);
        return;
    }
    assert_true((d->samples != NULL) == (n >= 0) && (d->scalar != NULL) == (n < 0));
    for (int k = 0; k < (n < 0 ? 1 : 9); k++) {
        char name[64];
        double want, one;

        snprintf(name, sizeof(name), "%s%s", n < 0 ? "" : prefixes[k], d->name);
        want = n < 0 ? value : statistic(prefixes[k], x, n);
        same(metric(m, name), isfinite(want) ? want : NAN, name, round);
        assert_int_equal(metrics_find(m, name)->why[0] == 0, isfinite(want));
        assert_string_equal(metrics_find(m, name)->unit, d->unit);
        assert_ok(metrics_one(&one, in, name));
        same(one, want, name, round);
    }
}

TEST(random_rows)
{
    static const double errors_us[] = {5, 1, 9, 3}, scales[] = {0.5, 1, 2};
    static struct made made;
    struct rng r;

    rng_init(&r, test_seed(), "rows");
    for (int round = 0; round < 1500; round++) {
        int n = round < 30 ? round / 10 : (int)rng_below(&r, ROWS_MAX + 1), n_values = 0;
        struct metrics_input in = {.rows = made.rows,
                                   .n_rows = (size_t)n,
                                   .slo = {.ttft_ms = 3.0 * (double)rng_below(&r, 2),
                                           .tpot_ms = (double)rng_below(&r, 2),
                                           .scale = scales,
                                           .n_scale = (int)rng_below(&r, 4)},
                                   .read_gbps = rng_below(&r, 4) ? 1 : NAN,
                                   .peak_gflops = rng_below(&r, 4) ? 2 : NAN,
                                   .read_why = "no bound",
                                   .peak_why = "no peak",
                                   .timer_error_us = errors_us,
                                   .n_timer_error = rng_below(&r, 5)};
        bool none = true;
        struct metrics m;

        make_rows(&made, n, round % 3 != 0, &r);
        metrics_compute(&m, &in);
        for (const struct metrics_def *d = metrics_defs; d->name; d++) {
            check_def(&in, &m, d, round);
            n_values += d->samples ? 9 : 1;
        }
        assert_int_equal(m.n_values, n_values);
        for (int i = 0; i < n; i++)
            none = none && made.rows[i].warmup;
        assert_int_equal(m.n_series, none || in.slo.n_scale == 0 ? 0 : 2);
        for (int k = 0; k < in.slo.n_scale && m.n_series; k++) {
            double met = 0, all = 0;

            for (int i = 0; i < n; i++) {
                met +=
                    !made.rows[i].warmup && scale_of(&made.rows[i], &in.slo) <= scales[k];
                all += !made.rows[i].warmup;
            }
            assert_true(m.series[0].v[k] == scales[k]);
            same(m.series[1].v[k], met / all, "attainment by scale", round);
        }
        metrics_fini(&m);
    }
}

/* A request of no length at the moment when another begins is not served together with it. */
TEST(touching_is_no_overlap)
{
    const int64_t t[] = {10 * MS, 20 * MS}, now[] = {10 * MS},
                  then[] = {20 * MS, 30 * MS};
    struct metrics_row r[] = {row_at(0, 0, t, 2), row_at(20 * MS, 20 * MS, then, 2)};
    struct metrics_input in = {.rows = r, .n_rows = 2, .read_why = "", .peak_why = ""};
    double v;

    assert_ok(metrics_one(&v, &in, "prefill_tok_s")); /* one ends when the next begins */
    assert_near(v, 20 / 0.010, 1e-6);
    r[0] = row_at(10 * MS, 10 * MS, now, 1);
    r[1] = row_at(10 * MS, 10 * MS, then, 2);
    assert_ok(metrics_one(&v, &in, "prefill_tok_s"));
    assert_near(v, 20 / 0.010, 1e-6);
    r[1].dispatch_ns = 9 * MS; /* now it does begin before the first has ended */
    r[0].done_ns = 11 * MS;
    assert_ok(metrics_one(&v, &in, "prefill_tok_s"));
    assert_true(isnan(v));
}

/* With as many samples as it takes a percentile is there, with one less it is not. */
TEST(percentiles_from_their_floor_on)
{
    static const struct {
        const char *name;
        size_t least;
    } all[] = {{"p95_ttft_ms", 72}, {"p99_ttft_ms", 368}, {"p99.9_ttft_ms", 3688}};
    static struct metrics_row r[3688];
    static int64_t t[3688];

    for (int i = 0; i < 3688; i++) {
        t[i] = (i + 1) * MS;
        r[i] = row_at(0, 0, &t[i], 1);
    }
    for (size_t k = 0; k < 3; k++)
        for (size_t more = 0; more < 2; more++) {
            struct metrics_input in = {.rows = r,
                                       .n_rows = all[k].least - 1 + more,
                                       .read_why = "",
                                       .peak_why = ""};
            struct metrics m;
            double one;

            metrics_compute(&m, &in);
            assert_ok(metrics_one(&one, &in, all[k].name));
            assert_true(isnan(metric(&m, all[k].name)) == (more == 0) &&
                        isnan(one) == (more == 0));
            metrics_fini(&m);
        }
}

TEST(words)
{
    static const char *const states[] = {"ok", "failed", "timeout", "rejected"};
    char name[32];

    for (int i = 0; i < 4; i++)
        assert_string_equal(metrics_status_name((enum metrics_status)i), states[i]);
    for (int i = 0; metrics_evidence[i]; i++) { /* another text of the same letters */
        snprintf(name, sizeof(name), "%s", metrics_evidence[i]);
        assert_ptr_equal(metrics_evidence_find(name), metrics_evidence[i]);
    }
    assert_null(metrics_evidence_find("measured "));
    assert_null(metrics_evidence_find(NULL));
    for (const struct metrics_def *d = metrics_goodput_defs; d->name; d++) {
        double v;

        assert_true(!d->scalar && !d->samples);
        assert_ok(metrics_known(d->name));
        assert_string_equal(metrics_unit(d->name), d->unit);
        assert_ok(metrics_one(&v, &(struct metrics_input){.n_rows = 0}, d->name));
        assert_true(isnan(v)); /* of a search, not of a cell */
    }
    assert_err(metrics_known("goodput_n_trial"), ERR_NOTFOUND, "goodput_n_trials");
    assert_string_equal(metrics_unit("no metric"), "");
}
