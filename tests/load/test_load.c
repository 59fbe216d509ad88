#include "tests/metrics/rows.h"

#include "base/stats.h"
#include "experiments/load/load.h"
#include "experiments/load/stages.h"

static const struct load_process *process(const char *name)
{
    const struct load_process *p;

    assert_ok(load_process_find(name, &p));
    return p;
}

static void arrivals(const char *name, const struct load_opts *o, uint64_t seed,
                     double *a, size_t n)
{
    const struct load_trace none = {0};

    process(name)->arrivals(o, seed, &none, a, n);
}

TEST(constant_is_a_grid)
{
    struct load_opts o = {.rate_rps = 8};
    double a[4];

    arrivals("constant", &o, 1, a, 4);
    for (int i = 0; i < 4; i++)
        assert_near(a[i], i * 0.125, 1e-12);
}

TEST(poisson_has_its_rate_and_spread)
{
    enum { N = 100000 };
    static double a[N], gap[N];
    struct load_opts o = {.rate_rps = 20};

    arrivals("poisson", &o, test_seed(), a, N);
    for (int i = 0; i < N; i++) {
        gap[i] = a[i] - (i ? a[i - 1] : 0);
        assert_true(gap[i] >= 0);
    }
    /* Mean and deviation of an exponential are both 1/rate; 5 sigma of N draws. */
    assert_near(stats_mean(gap, N), 0.05, 5 * 0.05 / sqrt(N));
    assert_near(stats_std(gap, N), 0.05, 0.05 * 0.03);
}

/* The seed alone decides; a sweep over rates stretches one pattern. */
TEST(poisson_is_seeded)
{
    struct load_opts slow = {.rate_rps = 1}, fast = {.rate_rps = 10};
    double a[50], b[50], c[50];

    arrivals("poisson", &slow, 7, a, 50);
    arrivals("poisson", &fast, 7, b, 50);
    arrivals("poisson", &slow, 8, c, 50);
    for (int i = 0; i < 50; i++)
        assert_near(a[i], b[i] * 10, 1e-9);
    assert_true(a[49] != c[49]);
}

/* Mean 1/rate and coefficient of variation 1/sqrt(burstiness); at 1 a gap is exponential,
 * whose median is ln 2 of its mean. */
TEST(gamma_has_its_rate_and_burstiness)
{
    enum { N = 200000 };
    static const double shapes[] = {0.25, 1, 4};
    static double a[N], gap[N];

    for (int k = 0; k < 3; k++) {
        struct load_opts o = {.rate_rps = 20, .burstiness = shapes[k]};
        double cv = 1 / sqrt(shapes[k]);

        arrivals("gamma", &o, test_seed(), a, N);
        for (int i = 0; i < N; i++) {
            gap[i] = a[i] - (i ? a[i - 1] : 0);
            assert_true(gap[i] >= 0);
        }
        assert_near(stats_mean(gap, N), 0.05, 5 * 0.05 * cv / sqrt(N));
        assert_near(stats_std(gap, N), 0.05 * cv, 0.05 * cv * 0.05);
        if (shapes[k] == 1)
            assert_near(stats_median(gap, N), 0.05 * log(2), 0.05 * 0.02);
    }
}

/* The trace's own times, stretched; from its end on again after one mean gap. */
TEST(trace_replays_and_repeats)
{
    static const double at[] = {3, 4, 4, 9}, want[] = {0, 1, 1, 6, 8, 9, 9, 14, 16};
    const struct load_trace trace = {at, 4}, one = {at, 1}, none = {NULL, 0};
    struct load_opts o = {.time_scale = 0.5};
    double a[9];

    assert_ok(load_arrivals(process("trace"), &o, 1, &trace, a, 9));
    for (int i = 0; i < 9; i++)
        assert_near(a[i], 0.5 * want[i], 1e-12);
    assert_ok(load_arrivals(process("trace"), &o, 1, &one, a, 3));
    assert_near(a[2], 1, 1e-12);
    assert_err(load_arrivals(process("trace"), &o, 1, &none, a, 9), ERR_ARG,
               "needs a data set with arrival times");
    o.time_scale = 1e9;
    assert_err(load_arrivals(process("trace"), &o, 1, &trace, a, 9), ERR_LIMIT,
               "load.time_scale");
}

TEST(closed_has_no_arrivals)
{
    assert_null(process("closed")->arrivals);
}

/* Nanoseconds of every time that is accepted fit 64 bits, at the lowest rate, too.
 * Regression: Poisson arrivals at 1e-12 requests a second overflowed 64 bits. */
TEST(arrivals_have_an_end)
{
    static const char *const names[] = {"constant", "poisson"};
    struct load_opts o = {.rate_rps = LOAD_RATE_MIN_RPS};
    const struct load_trace none = {0};
    double a[200];

    for (int i = 0; i < 2; i++) {
        const struct load_process *p = process(names[i]);

        assert_ok(load_arrivals(p, &o, 1, &none, a, 3));
        assert_true(a[2] * 1e9 < (double)INT64_MAX / 100);
        assert_err(load_arrivals(p, &o, 1, &none, a, 200), ERR_LIMIT,
                   "the last of 200 would");
        o.rate_rps = 1e-12;
        assert_err(load_arrivals(p, &o, 1, &none, a, 2), ERR_LIMIT,
                   "1e-12 requests a second");
        o.rate_rps = LOAD_RATE_MIN_RPS;
    }
}

TEST(senseless_options_are_refused)
{
    char open[] = "poisson", closed[] = "closed", wrong[] = "poison";
    struct load_opts o = {
        .process = open, .concurrency = 1, .burstiness = 1, .time_scale = 1};

    assert_err(load_check(&o, "x.json: load"), ERR_ARG, "x.json: load.rate_rps");
    o.rate_rps = 1e-12;
    assert_err(load_check(&o, "x"), ERR_ARG, "at least 1e-06, found 1e-12");
    o.rate_rps = 3;
    assert_ok(load_check(&o, "x"));
    o.concurrency = 4;
    assert_err(load_check(&o, "x"), ERR_ARG, "concurrency");
    o.process = closed;
    assert_err(load_check(&o, "x"), ERR_ARG,
               "x.rate_rps: process \"closed\" has no such option, found 3 (those that "
               "have it: constant, gamma, poisson)");
    o.rate_rps = 0;
    assert_ok(load_check(&o, "x"));
    o.burstiness = 0.5;
    assert_err(load_check(&o, "x"), ERR_ARG, "(the one that has it: gamma)");
    o.burstiness = 1;
    o.time_scale = 2;
    assert_err(load_check(&o, "x"), ERR_ARG, "(the one that has it: trace)");
    o.time_scale = 1;
    o.process = wrong;
    assert_err(load_check(&o, "x"), ERR_NOTFOUND, "did you mean \"poisson\"");
}

/* --- stages */

static int stages_of(struct load_stage v[LOAD_STAGES_MAX], const char *text)
{
    int n = 0;

    assert_ok(load_stages_read(v, &n, text, "stages"));
    return n;
}

/* In each piece of time there come as many as the integral of the rate, within 5 deviations of a
 * Poisson count. */
TEST(stages_have_their_rates)
{
    static double a[40000];
    struct load_stage v[LOAD_STAGES_MAX];
    const int n = stages_of(v, "20@100s,20-60@200s,0@50s,60-0@2m,5@100s");
    const size_t all = load_stages_arrivals(v, n, test_seed(), a, 40000);

    assert_int_equal(n, 5);
    assert_near(v[4].end_s, 570, 1e-9);
    assert_near(load_stages_expected(v, n, 570), 2000 + 8000 + 0 + 3600 + 500, 1e-6);
    assert_near(load_stages_expected(v, n, 200), 2000 + 3000, 1e-6);
    assert_int_equal(load_stages_arrivals(v, n, test_seed(), NULL, 0), all);
    for (double from = 0; from < 570; from += 10) {
        const double want =
            load_stages_expected(v, n, from + 10) - load_stages_expected(v, n, from);
        double got = 0;

        for (size_t i = 0; i < all; i++)
            got += a[i] >= from && a[i] < from + 10;
        assert_near(got, want, 5 * sqrt(want) + 1e-9);
    }
    for (size_t i = 1; i < 40000; i++)
        assert_true(a[i] >= a[i - 1]);
    assert_true(a[all - 1] < 570 && a[all] >= 570); /* those wanted beyond come later */
}

TEST(stages_are_a_process)
{
    struct load_opts o = {.process = (char[]){"stages"},
                          .concurrency = 1,
                          .burstiness = 1,
                          .time_scale = 1};
    double a[10], b[10];

    assert_err(load_check(&o, "load"), ERR_ARG, "load.stages: process \"stages\" needs");
    o.stages = (char[]){"10@2s,10-0@1s"};
    assert_ok(load_check(&o, "load"));
    arrivals("stages", &o, 3, a, 10);
    arrivals("stages", &o, 3, b, 10);
    assert_memory_equal(a, b, sizeof(a));
    assert_true(process("stages")->count(&o, 3) > 5);
    o.process = (char[]){"closed"};
    assert_err(load_check(&o, "load"), ERR_ARG, "process \"closed\" has no such option");
}

TEST(stages_that_are_refused)
{
    static const char *const bad[] = {"",         "1",          "1@",      "@60s",
                                      "1@60x",    "1@0s",       "-1@60s",  "1-@60s",
                                      "1-2-3@9s", "1@60s,",     "1@60s,2", "1e7@1s",
                                      "nan@1s",   "1@60s;2@1s", "a@60s",   "0@60s,0@9s"};
    struct load_stage v[LOAD_STAGES_MAX];
    char many[8 * LOAD_STAGES_MAX] = "1@1s";
    int n;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (load_stages_read(v, &n, bad[i], "--stages") != ERR_ARG ||
            !strstr(err_msg(), "--stages: expected"))
            fail_msg("\"%s\": %s", bad[i], err_msg());
    for (int i = 0; i < LOAD_STAGES_MAX; i++)
        strcat(many, ",1@1s");
    assert_err(load_stages_read(v, &n, many, "s"), ERR_LIMIT, "at most 64 stages");
    assert_err(load_stages_read(v, &n, "1@2700h,1@2700h,1@2700h,1@2700h", "s"), ERR_LIMIT,
               "s in all");
}
