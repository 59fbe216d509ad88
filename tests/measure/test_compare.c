#include "tests/support/test.h"

#include <math.h>

#include "measure/compare.h"

#define N_MAX      6
#define ROUNDS_MAX 64

/* A machine that only exists on paper: each trial advances its clock. */
struct machine {
    double base[N_MAX]; /* seconds of each alternative; NaN: cannot run */
    double drift;       /* every trial is so much slower than the one before */
    double noise;       /* up to so much is added, as a fraction */
    double swing;      /* odd alternatives are slower by it in odd rounds, even in even */
    double burst_frac; /* of the trials take ten times as long */
    bool tell;       /* ... and are reported as disturbed, as are those slow by `swing` */
    bool mark_odd;   /* every other trial is reported as disturbed */
    int fails_after; /* trials; alternative 0 cannot run then. 0: never */
    int error_at;    /* this trial is an error. 0: none */
    double slow_down; /* a drift by itself */
    bool by_clock;    /* seconds are left to the clock */
    double now_s;
    int n_trials, n_of[N_MAX];
    struct rng rng;
};

static uint64_t now(void *arg)
{
    return (uint64_t)(((struct machine *)arg)->now_s * 1e9);
}

static int run(void *arg, int i, struct measure_trial *t)
{
    struct machine *x = arg;
    double s = x->base[i];
    bool slow;

    assert_true(t->seconds == -1 && !t->disturbed);
    x->n_trials++;
    x->n_of[i]++;
    if (x->n_trials == x->error_at)
        return err_set(ERR_IO, "trial %d broke", x->n_trials);
    if (i == 0 && x->fails_after && x->n_of[0] > x->fails_after)
        s = NAN;
    x->slow_down += x->drift;
    slow = x->swing > 0 && (x->n_of[i] + i) % 2;
    s *= (1 + x->slow_down) * (1 + x->noise * rng_f64(&x->rng)) *
         (slow ? 1 + x->swing : 1);
    t->disturbed = x->tell && slow;
    if (rng_f64(&x->rng) < x->burst_frac) {
        s *= 10;
        t->disturbed |= x->tell;
    }
    t->disturbed |= x->mark_odd && x->n_trials % 2;
    x->now_s += isnan(s) ? 0 : s;
    if (!x->by_clock)
        t->seconds = s;
    return OK;
}

static struct measure *compare(struct machine *x, int n, struct measure_opts o)
{
    const struct measure_clock clock = {now, x};
    struct measure *m;

    rng_init(&x->rng, test_seed(), "machine");
    o.clock = &clock;
    assert_ok(measure_open(&m, N_MAX, ROUNDS_MAX));
    assert_ok(measure_compare(m, n, &o, run, x));
    return m;
}

/* What is used now is left for a surely better alternative only. */
static int keep(const struct measure *m, int used)
{
    int64_t complexity[N_MAX];

    for (int i = 0; i < N_MAX; i++)
        complexity[i] = i != used;
    return measure_choose(m, complexity, 0.02);
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g, expected %.12g", a, b);
}

/* The lowest decile by nearest rank and the binomial interval round it, by hand. */
TEST(estimator)
{
    static const struct {
        int n, at, lo, hi; /* ranks from 1 */
    } want[] = {{1, 1, 1, 1},  {3, 1, 1, 3},  {5, 1, 1, 3},  {10, 1, 1, 4},
                {11, 2, 1, 4}, {20, 2, 1, 6}, {40, 4, 1, 9}, {64, 7, 2, 12}};

    for (size_t k = 0; k < sizeof(want) / sizeof(want[0]); k++) {
        /* each trial is a second longer than the one before, so ranks are seconds */
        struct machine x = {.base = {1}, .drift = 1, .slow_down = -1};
        struct measure_opts o = {MEASURE_EXACTLY(want[k].n), .n_warm_up = -1};
        struct measure *m = compare(&x, 1, o);
        struct measure_report r;
        int n;

        measure_report(m, 0, &r);
        near(r.estimate, want[k].at);
        near(r.lo, want[k].lo);
        near(r.hi, want[k].hi);
        assert_true(r.best == 1 && r.n == want[k].n && r.n_disturbed == 0);
        assert_true(measure_times(m, 0, &n)[n - 1] == n && n == want[k].n);
        measure_close(&m);
    }
}

/* 4 % apart in a machine that slows down by a third meanwhile: only rounds can tell. */
TEST(drift)
{
    struct machine x = {.base = {1.04e-3, 1e-3}, .drift = 0.005};
    struct measure *m =
        compare(&x, 2, (struct measure_opts){MEASURE_EXACTLY(32), .n_warm_up = 3});
    struct measure_report r;

    assert_int_equal(x.n_trials, 2 * (32 + 3));
    assert_int_equal(measure_choose(m, NULL, 0), 1);
    assert_int_equal(keep(m, 0), 1);
    measure_ratio(m, 1, 0, &r);
    assert_true(r.n == 32 && r.hi < 1 && r.lo <= r.estimate && r.estimate <= r.hi);
    measure_close(&m);
}

/* A third of all trials takes ten times as long, said or not said. */
TEST(bursts)
{
    for (int tell = 0; tell < 2; tell++) {
        struct machine x = {.base = {1.05e-3, 1e-3, 1.1e-3},
                            .noise = 0.01,
                            .burst_frac = 0.33,
                            .tell = tell};
        struct measure *m =
            compare(&x, 3, (struct measure_opts){MEASURE_EXACTLY(ROUNDS_MAX)});
        struct measure_report r;

        assert_int_equal(keep(m, 0), 1);
        measure_report(m, 1, &r);
        assert_true(r.estimate >= 1e-3 && r.estimate < 1.01e-3);
        assert_true(tell ? r.n_disturbed > 5 && r.n + r.n_disturbed == ROUNDS_MAX
                         : r.n_disturbed == 0 && r.n == ROUNDS_MAX);
        measure_close(&m);
    }
}

/* Each round is disturbed for one of two, half of the rounds for each.
 * Regression: a comparison on a busy machine had no ratio, and its study failed, where
 * each round was disturbed for one of the two. */
TEST(no_round_undisturbed)
{
    struct machine x = {.base = {1e-3, 2e-3}, .swing = 1, .tell = true};
    struct measure *m = compare(&x, 2, (struct measure_opts){MEASURE_EXACTLY(8)});
    struct measure_report r;

    measure_report(m, 1, &r);
    near(r.estimate, 2e-3);
    assert_true(r.n == 4 && r.n_disturbed == 4);
    measure_ratio(m, 1, 0, &r); /* 2 / 2 and 4 / 1 in turn */
    near(r.estimate, 2.5);
    assert_true(r.n == 8 && r.n_disturbed == 8);
    measure_close(&m);
}

/* Where nothing is undisturbed, what was disturbed has to do. */
TEST(all_disturbed)
{
    struct machine x = {.base = {1e-3, 2e-3}, .burst_frac = 1, .tell = true};
    struct measure *m = compare(&x, 2, (struct measure_opts){MEASURE_EXACTLY(4)});
    struct measure_report r;

    measure_report(m, 1, &r);
    near(r.estimate, 20e-3);
    assert_true(r.n == 4 && r.n_disturbed == 4);
    assert_int_equal(keep(m, 1), 0); /* 4 rounds, each of them far beyond the margin */
    assert_int_equal(measure_choose(m, NULL, 0), 0);
    measure_close(&m);
}

/* A disturbance that cost no time does not count as one. */
TEST(harmless)
{
    struct machine x = {.base = {1e-3}, .noise = 0.1};
    struct measure_opts o = {MEASURE_EXACTLY(40)};
    struct measure *m;
    struct measure_report r;
    double slowest = 0;
    int n, n_slower = 0;

    x.mark_odd = true;
    m = compare(&x, 1, o);
    for (int i = 0; i < 40; i++)
        slowest = fmax(slowest, i % 2 ? 0 : measure_times(m, 0, &n)[i]);
    for (int i = 0; i < 40; i++)
        n_slower += measure_times(m, 0, &n)[i] > slowest;
    measure_report(m, 0, &r);
    assert_true(r.n_disturbed == 20 && r.n == 40 - n_slower && r.n > 20);
    measure_close(&m);
}

/* Two that are the same: the one that is asked to stay does. */
TEST(ties)
{
    struct machine x = {.base = {1e-3, 1e-3}, .swing = 0.05};
    struct measure *m = compare(&x, 2, (struct measure_opts){MEASURE_EXACTLY(20)});
    struct measure_report r;

    assert_int_equal(keep(m, 0), 0);
    assert_int_equal(keep(m, 1), 1);
    measure_ratio(m, 0, 1, &r);
    assert_true(r.lo < 1 && r.hi > 1);
    measure_close(&m);
    x = (struct machine){.base = {1e-3, 1e-3}}; /* to the bit */
    m = compare(&x, 2, (struct measure_opts){0});
    assert_int_equal(measure_choose(m, NULL, 0), 0);
    assert_int_equal(keep(m, 1), 1);
    measure_close(&m);
}

/* A gain that is sure and small is none to change for. */
TEST(small_gain)
{
    struct machine x = {.base = {1.015e-3, 1e-3}};
    struct measure *m = compare(&x, 2, (struct measure_opts){MEASURE_EXACTLY(20)});

    assert_int_equal(measure_choose(m, NULL, 0), 1);
    assert_int_equal(keep(m, 0), 0);
    measure_close(&m);
}

/* Four or five rounds are sure of a further 2 %, fewer of nothing. */
TEST(few_rounds)
{
    static const struct {
        int rounds;
        double slower_frac, margin_frac;
        bool sure;
    } rows[] = {{3, 1, 0, false},      {4, 0.019, 0, false}, {4, 0.021, 0, true},
                {5, 0.019, 0, false},  {5, 0.021, 0, true},  {5, 0.03, 0.02, false},
                {5, 0.05, 0.02, true}, {6, 0.001, 0, true},  {6, 0.019, 0.02, false},
                {6, 0.021, 0.02, true}};
    static const int64_t complexity[] = {0, 1};

    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        struct machine x = {.base = {1e-3 * (1 + rows[k].slower_frac), 1e-3}};
        struct measure *m =
            compare(&x, 2, (struct measure_opts){MEASURE_EXACTLY(rows[k].rounds)});

        if (measure_surely_slower(m, 0, 1, rows[k].margin_frac) != rows[k].sure ||
            measure_choose(m, complexity, rows[k].margin_frac) != rows[k].sure)
            fail_msg("row %zu", k);
        assert_false(measure_surely_slower(m, 1, 1, 0));
        assert_int_equal(measure_choose(m, NULL, 1), 1);
        measure_close(&m);
    }
}

/* The simplest within the margin, of equally simple ones the fastest; of plain estimates, too. */
TEST(simplest)
{
    static const double seconds[] = {1.5e-3, 1.01e-3, 1.005e-3, 1e-3, NAN, 1.3e-3};
    static const int64_t complexity[] = {0, 1, 1, 2, -1, 0}, even[N_MAX] = {0};
    static const struct {
        double margin_frac;
        int chosen;
    } rows[] = {{0, 3}, {0.004, 3}, {0.006, 2}, {0.02, 2}, {0.31, 5}, {0.6, 5}};
    struct machine x = {.base = {1.5e-3, 1.01e-3, 1.005e-3, 1e-3, NAN, 1.3e-3}};
    struct measure *m = compare(&x, N_MAX, (struct measure_opts){MEASURE_EXACTLY(8)});

    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        double f = rows[k].margin_frac;

        assert_int_equal(measure_choose(m, complexity, f), rows[k].chosen);
        assert_int_equal(measure_choose_estimate(seconds, N_MAX, complexity, f),
                         rows[k].chosen);
        assert_int_equal(measure_choose(m, even, f), 3);
    }
    assert_int_equal(measure_choose_estimate(seconds, N_MAX, NULL, 0), 3);
    assert_int_equal(measure_choose_estimate(seconds + 4, 1, NULL, 0), -1);
    assert_int_equal(measure_choose_estimate(NULL, 0, NULL, 0), -1);
    measure_close(&m);
}

static int scripted(void *arg, int i, struct measure_trial *t)
{
    t->seconds = i == 1 ? 1 : 2 + i;
    ++*(int *)arg;
    return OK;
}

/* Whoever compares, a script runs the trials. */
TEST(script)
{
    struct machine x = {.base = {1e-3, 1, 1}};
    struct measure *m;
    int n = 0;

    measure_script(scripted, &n);
    m = compare(&x, 3, (struct measure_opts){0});
    measure_script(NULL, NULL);
    assert_int_equal(keep(m, 0), 1);
    assert_true(n == 3 * 7 && x.n_trials == 0);
    measure_close(&m);
    m = compare(&x, 3, (struct measure_opts){0});
    assert_int_equal(measure_choose(m, NULL, 0), 0);
    measure_close(&m);
}

TEST(stops)
{
    struct machine x = {.base = {1e-3, 1e-3}};
    struct measure *m = compare(&x, 2, (struct measure_opts){0});

    assert_int_equal(x.n_of[0], 1 + 6); /* precise at once: the fewest rounds */
    measure_close(&m);

    x = (struct machine){.base = {1e-5, 1e-5}};
    m = compare(&x, 2, (struct measure_opts){.min_s = 20e-5});
    assert_int_equal(x.n_of[0], 1 + 20); /* as long as was asked */
    measure_close(&m);

    x = (struct machine){.base = {1e-2, 1e-2}, .drift = 0.1};
    m = compare(&x, 2, (struct measure_opts){.budget_s = 0.4});
    assert_true(x.n_of[0] < 1 + 25 && x.n_of[0] >= 1 + 6); /* the budget is spent */
    measure_close(&m);

    x = (struct machine){.base = {1, 1}, .drift = 0.1};
    m = compare(&x, 2, (struct measure_opts){.budget_s = 1e-9});
    assert_int_equal(x.n_of[1], 1 + 6); /* ... and no decision on fewer */
    measure_close(&m);

    x = (struct machine){.base = {1e-2, 1e-2}, .drift = 0.1};
    m = compare(&x, 2, (struct measure_opts){.budget_s = 1e9, .max_rounds = 40});
    assert_int_equal(x.n_of[1], 1 + 40); /* never precise */
    measure_close(&m);
}

/* What is surely slower costs nothing more, unless all are to be reported. */
TEST(slower_leaves)
{
    struct machine x = {.base = {4e-3, 1e-3}, .noise = 0.2};
    struct measure_opts o = {.max_rounds = 30, .precise_frac = 1e-6, .budget_s = 10};
    struct measure *m = compare(&x, 2, o);
    struct measure_report r;

    assert_int_equal(x.n_of[0], 1 + 6);
    assert_int_equal(x.n_of[1], 1 + 30);
    measure_report(m, 0, &r);
    assert_true(r.n == 6 && r.estimate >= 4e-3 && r.estimate < 4.8e-3);
    measure_close(&m);
    x = (struct machine){.base = {4e-3, 1e-3}, .noise = 0.2};
    o.keep_all = true;
    m = compare(&x, 2, o);
    assert_int_equal(x.n_of[0], 1 + 30);
    measure_close(&m);
}

/* One that cannot run leaves; the others go on. An error ends everything. */
TEST(failing)
{
    struct machine x = {.base = {1e-3, 2e-3, NAN}, .fails_after = 7};
    const struct measure_clock clock = {now, &x};
    struct measure_opts o = {MEASURE_EXACTLY(12)};
    struct measure *m = compare(&x, 3, o);
    struct measure_report r;
    int n;

    assert_int_equal(x.n_of[0], 8);
    assert_int_equal(x.n_of[1], 1 + 12);
    assert_int_equal(x.n_of[2], 1);
    assert_int_equal(measure_choose(m, NULL, 0), 1);
    assert_int_equal(keep(m, 0), 1);
    measure_report(m, 0, &r);
    assert_true(isnan(r.estimate) && isnan(r.lo) && isnan(r.hi) && r.n == 0);
    measure_ratio(m, 1, 0, &r);
    assert_true(isnan(r.estimate) && r.n == 0);
    assert_true(isnan(measure_times(m, 0, &n)[6]) && n == 12);

    x = (struct machine){.base = {NAN, NAN}};
    o.clock = &clock;
    assert_ok(measure_compare(m, 2, &o, run, &x));
    assert_int_equal(measure_choose(m, NULL, 0), -1);

    for (int at = 1; at <= 8; at++) {
        x = (struct machine){.base = {1e-3, 1e-3}, .error_at = at};
        assert_err(measure_compare(m, 2, &o, run, &x), ERR_IO, "broke");
        assert_int_equal(x.n_trials, at);
    }
    assert_err(measure_compare(m, 0, &o, run, &x), ERR_ARG, "0 alternatives");
    assert_err(measure_compare(m, N_MAX + 1, &o, run, &x), ERR_ARG, "7 alternatives");
    o.max_rounds = ROUNDS_MAX + 1;
    assert_err(measure_compare(m, 1, &o, run, &x), ERR_ARG, "65 rounds");
    measure_close(&m);
    measure_close(&m);
    assert_err(measure_open(&m, 0, 1), ERR_ARG, "expected 1 or more");
    assert_null(m);
}

/* One alternative by the clock is one that says its seconds; the order is the seed's. */
TEST(clock_and_order)
{
    struct machine a = {.base = {1e-3, 2e-3, 3e-3}, .drift = 0.01};
    struct machine b = a, c = a;
    struct measure_opts o = {MEASURE_EXACTLY(9), .seed = 5};
    struct measure *x = compare(&a, 3, o), *y, *z;
    bool same = true;
    int n;

    b.by_clock = true;
    y = compare(&b, 3, o);
    o.seed = 6;
    z = compare(&c, 3, o);
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < 9; r++) {
            double s = measure_times(x, i, &n)[r];

            assert_true(fabs(s - measure_times(y, i, &n)[r]) < 2e-9);
            same = same && s == measure_times(z, i, &n)[r];
        }
    assert_false(same);
    measure_close(&x);
    measure_close(&y);
    measure_close(&z);
}

TEST(no_memory)
{
    for (int n = 0;; n++) {
        struct measure *m;
        int rc;

        mem_fail_after(n, 1);
        rc = measure_open(&m, 3, 3);
        mem_fail_after(-1, 0);
        if (rc == OK) {
            measure_close(&m);
            assert_int_equal(n, 6); /* itself and five arrays, each of them needed */
            return;
        }
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(m);
    }
}

static int sleepless(void *arg, int i, struct measure_trial *t)
{
    volatile double *x = arg;

    (void)t;
    for (int k = 0; k < 20000 * (i + 1); k++)
        *x = *x * 0.5 + i;
    return OK;
}

/* On the real clock: five times the work takes longer. */
TEST(real)
{
    struct measure_report one, five;
    struct measure *m;
    double x = 1;

    assert_ok(measure_open(&m, 5, 25));
    assert_ok(measure_compare(m, 5, NULL, sleepless, &x));
    assert_int_equal(measure_choose(m, NULL, 0), 0);
    measure_report(m, 0, &one);
    measure_report(m, 4, &five);
    assert_true(one.best > 0 && one.best <= one.estimate && one.lo <= one.estimate &&
                one.estimate <= one.hi && five.estimate > one.estimate);
    measure_close(&m);
}
