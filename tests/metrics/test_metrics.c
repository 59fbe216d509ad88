/* Every definition against rows whose answer is known on paper. */
#include "tests/metrics/rows.h"

#include "base/stats.h"
#include "experiments/load/load.h"

/* Regression: checks compared a number with itself, such as a speed-up, shares or
 * Little's law, or with a bound that nothing crosses. */

static struct metrics compute(const struct metrics_row *rows, size_t n,
                              struct metrics_slo slo)
{
    struct metrics_input in = {.rows = rows,
                               .n_rows = n,
                               .slo = slo,
                               .read_gbps = NAN,
                               .peak_gflops = NAN,
                               .read_why = "none given",
                               .peak_why = "none given"};
    struct metrics m;

    metrics_compute(&m, &in);
    return m;
}

static const struct metrics_slo no_slo;
static const struct load_trace no_trace;

TEST(one_request)
{
    /* intended 0, sent at 2 ms, tokens at 10, 14, 20 ms */
    const int64_t t[] = {10 * MS, 14 * MS, 20 * MS};
    struct metrics_row r = row_at(0, 2 * MS, t, 3);
    struct metrics m = compute(&r, 1, no_slo);

    assert_near(metric(&m, "mean_ttft_ms"), 10, 1e-9);
    assert_near(metric(&m, "mean_ttft_service_ms"), 8, 1e-9);
    assert_near(metric(&m, "mean_tpot_ms"), 5, 1e-9);
    assert_near(metric(&m, "mean_itl_ms"), 5, 1e-9);
    assert_near(metric(&m, "min_itl_ms"), 4, 1e-9);
    assert_near(metric(&m, "max_itl_ms"), 6, 1e-9);
    assert_near(metric(&m, "mean_e2e_ms"), 20, 1e-9);
    assert_near(metric(&m, "mean_lateness_ms"), 2, 1e-9);
    assert_near(metric(&m, "duration_s"), 0.020, 1e-12);
    assert_near(metric(&m, "output_throughput_tok_s"), 150, 1e-9);
    assert_near(metric(&m, "total_throughput_tok_s"), 650, 1e-9);
    assert_near(metric(&m, "decode_tok_s"), 200, 1e-9);
    assert_near(metric(&m, "prefill_tok_s"), 1250, 1e-9);
    assert_near(metric(&m, "identity_e2e_error_ms"), 0, 0);
    assert_string_equal(why(&m, "std_ttft_ms"), "one sample has no spread");
    metrics_fini(&m);
}

TEST(one_token_has_no_tpot)
{
    const int64_t t[] = {10 * MS};
    struct metrics_row r = row_at(0, 0, t, 1);
    struct metrics_slo slo = {.ttft_ms = 10, .tpot_ms = 0.001};
    struct metrics m = compute(&r, 1, slo);

    assert_true(isnan(metrics_tpot_ms(&r)));
    assert_string_equal(why(&m, "mean_tpot_ms"), "no sample");
    assert_string_equal(why(&m, "decode_tok_s"), "no request had a second token");
    assert_near(metric(&m, "slo_attainment_frac"), 1, 0);
    metrics_fini(&m);
}

TEST(percentiles_need_their_floor)
{
    static int64_t t[400];
    struct metrics_row r[400];
    struct metrics m;

    for (int i = 0; i < 400; i++) { /* TTFT of i + 1 ms */
        t[i] = i * 1000 * MS + (i + 1) * MS;
        r[i] = row_at(i * 1000 * MS, i * 1000 * MS, &t[i], 1);
    }
    m = compute(r, 41, no_slo);
    assert_near(metric(&m, "p50_ttft_ms"), 21, 1e-9); /* ceil(20.5) */
    assert_near(metric(&m, "p90_ttft_ms"), 37, 1e-9); /* ceil(36.9) */
    assert_string_equal(why(&m, "p95_ttft_ms"), "n=41 < 72");
    assert_string_equal(why(&m, "p99_ttft_ms"), "n=41 < 368");
    assert_string_equal(why(&m, "p99.9_ttft_ms"), "n=41 < 3688");
    metrics_fini(&m);
    m = compute(r, 400, no_slo);
    assert_near(metric(&m, "p99_ttft_ms"), 396, 1e-9);
    metrics_fini(&m);
}

TEST(attainment_needs_both_and_errors_violate)
{
    const int64_t good[] = {10 * MS, 20 * MS}, late[] = {90 * MS, 100 * MS},
                  slow[] = {10 * MS, 90 * MS};
    const double scale[] = {0.5, 1, 10};
    struct metrics_slo slo = {.ttft_ms = 50, .tpot_ms = 40, .scale = scale, .n_scale = 3};
    struct metrics_row r[5] = {row_at(0, 0, good, 2), row_at(0, 0, late, 2),
                               row_at(0, 0, slow, 2), row_at(0, 0, good, 2),
                               row_at(0, 0, good, 2)};
    struct metrics m;

    r[3].status = METRICS_FAILED;
    r[4].warmup = true;
    m = compute(r, 5, slo);
    assert_near(metric(&m, "slo_attainment_frac"), 0.25, 1e-12);
    assert_near(metric(&m, "ttft_attainment_frac"), 0.5, 1e-12); /* good and slow */
    assert_near(metric(&m, "min_slo_scale"), 10 / 40.0, 1e-12);  /* good: TPOT 10 of 40 */
    assert_near(metric(&m, "p50_slo_scale"), 90 / 50.0, 1e-12);  /* late: TTFT 90 of 50 */
    assert_true(isnan(metric(&m, "max_slo_scale")));             /* one failed */
    assert_near(metric(&m, "tpot_attainment_frac"), 0.5, 1e-12); /* good and late */
    assert_near(metric(&m, "error_frac"), 0.25, 1e-12);
    assert_near(metric(&m, "n_requests"), 4, 0);
    assert_near(metric(&m, "n_failed"), 1, 0);
    assert_near(metric(&m, "request_goodput_rps"), 10, 1e-9); /* 1 in 100 ms */
    assert_int_equal(m.n_series, 2);
    assert_string_equal(m.series[0].name, "slo_scale");
    assert_near(m.series[0].v[2], 10, 0);
    assert_near(m.series[1].v[0], 0.25, 1e-12);
    assert_near(m.series[1].v[1], 0.25, 1e-12);
    assert_near(m.series[1].v[2], 0.75, 1e-12); /* all but the failed one */
    metrics_fini(&m);
}

TEST(no_objective_is_not_zero)
{
    const int64_t t[] = {10 * MS};
    struct metrics_row r = row_at(0, 0, t, 1);
    struct metrics m = compute(&r, 1, no_slo);

    assert_non_null(strstr(why(&m, "slo_attainment_frac"), "no objective"));
    assert_string_equal(why(&m, "tpot_attainment_frac"), "the job sets no slo.tpot_ms");
    metrics_fini(&m);
}

/* The sender is blocked from 100 to 300 ms. Measured from the dispatch, nothing happened:
 * every request took 1 ms. From the intended start the stall is there in full. */
TEST(a_stalled_sender_is_seen)
{
    int64_t t[100];
    struct metrics_row r[100];
    struct metrics m;
    double worst = 0;

    for (int i = 0; i < 100; i++) {
        int64_t intended = i * 10 * MS;
        int64_t sent = intended > 100 * MS && intended < 300 * MS ? 300 * MS : intended;

        t[i] = sent + 1 * MS;
        r[i] = row_at(intended, sent, &t[i], 1);
        worst = fmax(worst, (double)(t[i] - intended) / 1e6);
    }
    m = compute(r, 100, no_slo);
    assert_near(metric(&m, "max_ttft_service_ms"), 1, 1e-9);
    assert_near(metric(&m, "max_ttft_ms"), 191, 1e-9);
    assert_near(metric(&m, "max_ttft_ms"), worst, 1e-9);
    assert_near(metric(&m, "max_lateness_ms"), 190, 1e-9);
    assert_near(metric(&m, "p90_ttft_ms"), 91, 1e-9); /* 81 on time, then 11, 21 ... */
    metrics_fini(&m);
}

/* One server with a fixed service time: each waits for the one before it. */
static void serve_in_order(struct metrics_row *r, int64_t *t, const double *arrival_s,
                           size_t n, int64_t service_ns)
{
    int64_t free_at = 0;

    for (size_t i = 0; i < n; i++) {
        int64_t a = (int64_t)(arrival_s[i] * 1e9);

        free_at = (free_at > a ? free_at : a) + service_ns;
        t[i] = free_at;
        r[i] = row_at(a, a, &t[i], 1);
    }
}

/* Arrivals every 10 ms, service of 20 ms: the i-th waits i * 10 ms. */
TEST(overload_grows_linearly)
{
    enum { N = 100 };
    struct load_opts load = {.rate_rps = 100};
    struct metrics_row r[N];
    int64_t t[N];
    double a[N];
    const struct load_process *p;
    struct metrics_overload over;
    struct metrics m;

    assert_ok(load_process_find("constant", &p));
    p->arrivals(&load, 0, &no_trace, a, N);
    serve_in_order(r, t, a, N, 20 * MS);
    for (int i = 0; i < N; i++)
        assert_near(metrics_ttft_ms(&r[i]), 20 + 10 * i, 1e-4);
    m = compute(r, N, no_slo);
    assert_near(metric(&m, "p50_ttft_ms"), 20 + 10 * 49, 1e-4);
    assert_near(metric(&m, "request_throughput_rps"), 50, 1e-3); /* the server's rate */
    assert_near(metric(&m, "offered_rate_rps"), 100, 1e-3);
    assert_near(metric(&m, "achieved_rate_rps"), 50, 1e-3);
    assert_true(metrics_overloaded(&m, &over));
    assert_near(over.observed, 50, 1e-3);
    assert_near(over.threshold, 95, 1e-3);
    assert_non_null(strstr(over.text, "100 requests a second came and 50 ended"));
    /* Little's law: the stays, 20 + 10 i ms, over the 2 s that all of them take */
    assert_near(metric(&m, "little_l"), (100 * 20 + 10 * 99 * 100 / 2) / 2000.0, 1e-6);
    metrics_fini(&m);
}

/* Half of the requests never end: what ends keeps its time, so only the backlog tells. */
TEST(requests_that_never_end)
{
    enum { N = 100 };
    static struct metrics_row r[N];
    static int64_t t[N];
    struct metrics_overload over;
    struct metrics m;

    for (int i = 0; i < N; i++) {
        t[i] = (10 * i + 5) * MS;
        r[i] = row_at(10 * i * MS, 10 * i * MS, &t[i], 1);
        if (i % 2)
            r[i].status = i % 4 == 1 ? METRICS_TIMEOUT : METRICS_REJECTED;
    }
    m = compute(r, N, no_slo);
    assert_true(metrics_overloaded(&m, &over));
    assert_near(metric(&m, "achieved_rate_rps"), 50, 1); /* 50 of 100, in the same time */
    metrics_fini(&m);
    for (int i = 0; i < N; i++)
        r[i].status = i % 10 == 9 ? METRICS_FAILED : METRICS_OK;
    m = compute(r, N, no_slo); /* a failure is another matter: its request ended */
    assert_false(metrics_overloaded(&m, &over));
    assert_near(metric(&m, "backlog_growth"), 0, 0.1);
    metrics_fini(&m);
    for (int i = 0; i < N;
         i++) { /* from the 70th on each takes longer than the one before */
        t[i] += (i > 70) * 40 * MS * (i - 70);
        r[i] = row_at(10 * i * MS, 10 * i * MS, &t[i], 1);
    }
    m = compute(r, N, no_slo);
    assert_true(metrics_overloaded(&m, &over));
    metrics_fini(&m);
}

/* M/D/1 at utilisation 0.5: mean wait = rho S / (2 (1 - rho)) (Pollaczek, Khinchine). */
TEST(poisson_queue_waits_as_it_must)
{
    enum { N = 200000 };
    struct load_opts load = {.rate_rps = 50};
    struct metrics_row *r = mem_new(MEM_TEST, N, sizeof(*r));
    int64_t *t = mem_new(MEM_TEST, N, sizeof(*t));
    double *a = mem_new(MEM_TEST, N, sizeof(*a));
    const struct load_process *p;
    struct metrics m;

    assert_true(r && t && a);
    assert_ok(load_process_find("poisson", &p));
    p->arrivals(&load, test_seed(), &no_trace, a, N);
    serve_in_order(r, t, a, N, 10 * MS);
    m = compute(r, N, no_slo);
    assert_near(metric(&m, "mean_ttft_ms"), 10 + 5, 0.2);
    assert_near(metric(&m, "little_l"), 0.75, 0.02); /* lambda W = 50/s x 15 ms */
    metrics_fini(&m);
    mem_free(r);
    mem_free(t);
    mem_free(a);
}

TEST(contradicting_times_show)
{
    const int64_t back[] = {10 * MS, 30 * MS, 20 * MS};
    struct metrics_row r = row_at(0, 0, back, 3);
    struct metrics m = compute(&r, 1, no_slo);

    assert_near(metric(&m, "identity_e2e_error_ms"), 20, 1e-9);
    metrics_fini(&m);
}

TEST(bounds)
{
    /* 10 GB in 1 s after the first token; 5 GFLOP in 0.5 s before it */
    const int64_t t[] = {500 * MS, 1000 * MS, 1500 * MS};
    struct metrics_row r[2] = {row_at(0, 0, t, 3), row_at(100 * MS, 100 * MS, t, 3)};
    struct metrics_input in = {.rows = r,
                               .n_rows = 1,
                               .read_gbps = 20,
                               .peak_gflops = 40,
                               .read_why = "none given",
                               .peak_why = "none given"};
    struct metrics m;

    for (int i = 0; i < 2; i++) {
        r[i].decode_bytes = 10e9;
        r[i].prefill_flop = 5e9;
    }
    metrics_compute(&m, &in);
    assert_near(metric(&m, "decode_read_gbps"), 10, 1e-9);
    assert_near(metric(&m, "decode_bandwidth_frac"), 0.5, 1e-12);
    assert_near(metric(&m, "prefill_gflops"), 10, 1e-9);
    assert_near(metric(&m, "prefill_peak_frac"), 0.25, 1e-12);
    assert_near(metric(&m, "tpot_below_bound_frac"), 0, 0);
    metrics_fini(&m);

    in.read_gbps = 9; /* faster than memory: a cache served it */
    metrics_compute(&m, &in);
    assert_near(metric(&m, "tpot_below_bound_frac"), 1, 0);
    metrics_fini(&m);

    in.read_gbps = NAN;
    metrics_compute(&m, &in);
    assert_string_equal(why(&m, "decode_bandwidth_frac"), "none given");
    assert_near(metric(&m, "prefill_peak_frac"), 0.25, 1e-12); /* a bound of its own */
    metrics_fini(&m);

    in.n_rows = 2; /* together: a read of the weights serves both */
    metrics_compute(&m, &in);
    assert_non_null(strstr(why(&m, "decode_read_gbps"), "overlapped"));
    assert_non_null(strstr(why(&m, "prefill_gflops"), "overlapped"));
    metrics_fini(&m);
}

TEST(nothing_measured)
{
    struct metrics_row r = row_at(0, 0, NULL, 0);
    struct metrics m;

    r.status = METRICS_TIMEOUT;
    r.done_ns = 5 * MS;
    m = compute(&r, 1, no_slo);
    assert_near(metric(&m, "n_completed"), 0, 0);
    assert_near(metric(&m, "n_timeout"), 1, 0);
    assert_string_equal(why(&m, "mean_ttft_ms"), "no sample");
    metrics_fini(&m);
    m = compute(&r, 0, no_slo);
    for (size_t i = 0; i < m.n_values; i++)
        assert_true(!isnan(m.values[i].value) || m.values[i].why[0]);
    metrics_fini(&m);
}

TEST(goodput)
{
    const double rate[] = {4, 1, 2, 8}, met[] = {0.89, 1, 0.95, 0.95};

    assert_near(metrics_goodput_rps(rate, met, 4, 0.9), 2,
                0); /* 8 is luck above a miss */
    assert_near(metrics_goodput_rps(rate, met, 4, 0.8), 8, 0);
    assert_true(isnan(metrics_goodput_rps(rate, met, 4, 1.1)));
    assert_true(isnan(metrics_goodput_rps(rate, met, 0, 0.9)));
}

TEST(names)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    assert_ok(metrics_known("p99_ttft_ms"));
    assert_ok(metrics_known("slo_attainment_frac"));
    assert_err(metrics_known("p99_tttf_ms"), ERR_NOTFOUND, "p99_ttft_ms");
    assert_string_equal(metrics_unit("p90_tpot_ms"), "ms");
    metrics_docs(f);
    fclose(f);
    for (const struct metrics_def *d = metrics_defs; d->name; d++)
        assert_non_null(strstr(text, d->text));
    free(text);
}

TEST(no_share_exceeds_its_bound)
{
    static const struct {
        const char *name, *unit;
        double value;
        bool want;
    } cases[] = {
        {"decode_bandwidth_frac", "", 1.2, true},
        {"decode_bandwidth_frac", "", 1.0201, true},
        {"decode_bandwidth_frac", "", 1.02, false},
        {"decode_bandwidth_frac", "", NAN, false},
        {"prefill512_peak_frac_q4_0_a8", "", 1.2, true},
        {"batch_roof_frac_b16", "", 1.2, true},
        {"roof_frac_relaxed", "", 1.2, true},
        {"roofline_frac_geomean_bf16", "", 1.2, true},
        {"roof_frac_vs_first", "x", 1.2, false}, /* a ratio of two shares */
        {"tokens_per_prompt_frac", "", 1.2, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char why[96] = "";

        if (metrics_exceeds_bound(cases[i].name, cases[i].unit, cases[i].value, why) !=
                cases[i].want ||
            (why[0] != 0) != cases[i].want)
            fail_msg("%s = %g: \"%s\"", cases[i].name, cases[i].value, why);
    }
}
