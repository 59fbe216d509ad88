/* Comparisons of trials that are written down: each estimate, interval and end is that which is
 * computed here from the same numbers, and a lost CPU is what the kernel counts. */
#include "tests/support/test.h"

#include <math.h>
#include <sys/resource.h>

#include "base/stats_interval.h"
#include "measure/compare.h"

#define N_MAX      4
#define ROUNDS_MAX 40

static struct script {
    double seconds[N_MAX][ROUNDS_MAX];
    bool disturbed[N_MAX][ROUNDS_MAX];
    int n_of[N_MAX], order[N_MAX * ROUNDS_MAX], n_trials;
    int n_warm_up;
    uint64_t now_ns;
    long n_switches, lost; /* CPUs lost so far, and in each trial */
    int rusage_rc;
} script;

int __wrap_getrusage(int who, struct rusage *u);
int __wrap_getrusage(int who, struct rusage *u)
{
    assert_int_equal(who, RUSAGE_SELF);
    u->ru_nivcsw = script.n_switches;
    return script.rusage_rc;
}

static int play(void *arg, int i, struct measure_trial *t)
{
    int round = script.n_of[i]++ - script.n_warm_up;
    double s = script.seconds[i][round < 0 ? 0 : round];

    (void)arg;
    script.order[script.n_trials++] = i;
    t->seconds = s;
    t->disturbed = script.disturbed[i][round < 0 ? 0 : round];
    script.now_ns += isnan(s) ? 0 : (uint64_t)(s * 1e9);
    script.n_switches += script.lost;
    return OK;
}

static uint64_t now(void *arg)
{
    (void)arg;
    return script.now_ns;
}
static const struct measure_clock clock_of_script = {now, NULL};

static struct measure *compare(int n, struct measure_opts o)
{
    struct measure *m;

    script.n_warm_up = o.n_warm_up == 0 ? 1 : o.n_warm_up < 0 ? 0 : o.n_warm_up;
    script.n_trials = 0;
    memset(script.n_of, 0, sizeof(script.n_of));
    assert_ok(measure_open(&m, N_MAX, ROUNDS_MAX));
    assert_ok(measure_compare(m, n, &o, play, NULL));
    return m;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* ---- estimates */

/* The q-quantile by nearest rank, of a median of an even number the mean of both, and its
 * interval. */
static struct measure_report quantile(double *x, int n, double q)
{
    struct measure_report r = {NAN, NAN, NAN, NAN, n, 0};
    int lo, hi;

    if (n == 0)
        return r;
    qsort(x, (size_t)n, sizeof(*x), by_size);
    stats_quantile95(n, q, &lo, &hi);
    r.lo = x[lo];
    r.hi = x[hi];
    r.best = x[0];
    r.estimate = x[(int)ceil(q * n - 1e-9) - 1];
    if (q == 0.5 && n % 2 == 0)
        r.estimate = (x[n / 2] + x[n / 2 - 1]) / 2;
    return r;
}

/* The slowest undisturbed of at least three. */
static double limit_of(int i, int n_rounds)
{
    double most = 0;
    int n = 0;

    for (int k = 0; k < n_rounds; k++)
        if (!script.disturbed[i][k]) {
            most = fmax(most, script.seconds[i][k]);
            n++;
        }
    return n >= 3 ? most : INFINITY;
}

static struct measure_report by_rule(int a, int b, int n_rounds)
{
    double x[ROUNDS_MAX], all[ROUNDS_MAX], most_a = limit_of(a, n_rounds),
                                           most_b = limit_of(b, n_rounds);
    int n = 0, n_disturbed = 0;
    struct measure_report r;

    for (int k = 0; k < n_rounds; k++) {
        double s = script.seconds[a][k], of = script.seconds[b][k];
        bool disturbed = script.disturbed[a][k] || script.disturbed[b][k];

        all[k] = a == b ? s : s / of;
        n_disturbed += disturbed;
        if (!disturbed || (s <= most_a && of <= most_b))
            x[n++] = all[k];
    }
    if (n < 3) {
        n = n_rounds;
        memcpy(x, all, sizeof(all));
    }
    r = quantile(x, n, a == b ? 0.1 : 0.5);
    r.n_disturbed = n_disturbed;
    return r;
}

static void same(const struct measure_report *got, const struct measure_report *want,
                 int round)
{
    if (got->estimate != want->estimate || got->lo != want->lo || got->hi != want->hi ||
        got->best != want->best || got->n != want->n ||
        got->n_disturbed != want->n_disturbed)
        fail_msg("TEST_SEED=%llu round %d: %g of %d, %d disturbed, expected %g of %d, %d",
                 (unsigned long long)test_seed(), round, got->estimate, got->n,
                 got->n_disturbed, want->estimate, want->n, want->n_disturbed);
}

/* Few different times, so that they are often equal to a limit. */
TEST(estimates_are_by_the_rule)
{
    struct rng r;

    rng_init(&r, test_seed(), "times");
    for (int round = 0; round < 3000; round++) {
        int n_rounds = 1 + (int)rng_below(&r, round % 2 ? 8 : ROUNDS_MAX);
        uint64_t one_in = 1 + rng_below(&r, 4);
        struct measure *m;

        for (int i = 0; i < 3; i++)
            for (int k = 0; k < n_rounds; k++) {
                script.seconds[i][k] = 0.5 * (double)(1 + rng_below(&r, 6));
                script.disturbed[i][k] = rng_below(&r, one_in) == 0;
            }
        m = compare(3, (struct measure_opts){MEASURE_EXACTLY(n_rounds),
                                             .clock = &clock_of_script});
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) {
                struct measure_report got, want = by_rule(a, b, n_rounds);

                if (a == b)
                    measure_report(m, a, &got);
                else
                    measure_ratio(m, a, b, &got);
                same(&got, &want, round);
            }
        measure_close(&m);
    }
    memset(&script, 0, sizeof(script));
}

/* ---- order */

/* Each of the orders of 2 and of 3 alternatives comes as often as the others. */
TEST(orders_are_drawn)
{
    for (int n = 2; n <= 3; n++) {
        int seen[27] = {0}, n_orders = n == 2 ? 2 : 6;

        for (uint64_t seed = 0; seed < 40; seed++) {
            struct measure *m;

            for (int i = 0; i < n; i++)
                for (int k = 0; k < 30; k++)
                    script.seconds[i][k] = 1;
            m = compare(n,
                        (struct measure_opts){MEASURE_EXACTLY(30), .n_warm_up = -1,
                                              .seed = seed, .clock = &clock_of_script});
            assert_int_equal(script.n_trials, 30 * n);
            for (int k = 0; k < 30; k++) {
                const int *o = &script.order[k * n];

                seen[o[0] + 3 * o[1] + (n > 2 ? 9 * o[2] : 0)]++;
            }
            measure_close(&m);
        }
        for (int i = 0; i < 27; i++) { /* 1200 rounds: within 5 deviations */
            int want = 1200 / n_orders;

            assert_true(seen[i] == 0 || abs(seen[i] - want) < 5 * (int)sqrt(want));
        }
    }
}

/* ---- ends */

static int rounds_of(struct measure_opts o)
{
    struct measure *m;
    int n;

    o.clock = &clock_of_script;
    m = compare(1, o);
    (void)measure_times(m, 0, &n);
    assert_int_equal(script.n_of[0], n + script.n_warm_up);
    measure_close(&m);
    return n;
}

TEST(ends_at_the_bounds)
{
    const struct measure_opts never = {.min_s = 1e9, .budget_s = 1e9, .min_rounds = 2};
    struct measure_opts o = never;

    for (int k = 0; k < ROUNDS_MAX; k++)
        script.seconds[0][k] = 0.125;
    assert_int_equal(rounds_of(o), 25); /* the most by default */
    o.max_rounds = ROUNDS_MAX;
    assert_int_equal(rounds_of(o), ROUNDS_MAX);
    o.budget_s = 1; /* of 0.125 each: spent after the eighth */
    assert_int_equal(rounds_of(o), 8);
    o.min_rounds = 9; /* ... and more are asked for */
    assert_int_equal(rounds_of(o), 9);
    o = never, o.min_s = 0.5; /* four of them */
    assert_int_equal(rounds_of(o), 4);
    o.n_warm_up = 3;
    assert_int_equal(rounds_of(o), 4);
    o.max_rounds = 3; /* the fewest are no more than the most */
    o.min_rounds = 5;
    assert_int_equal(rounds_of(o), 3);
    /* by default two hundredths, 3 ms, a quarter of a second */
    assert_int_equal(rounds_of((struct measure_opts){0}), 6);
    for (int k = 0; k < ROUNDS_MAX; k++)
        script.seconds[0][k] = 0.0001;
    assert_int_equal(rounds_of((struct measure_opts){.max_rounds = ROUNDS_MAX}), 30);
    for (int k = 0; k < ROUNDS_MAX; k++)
        script.seconds[0][k] = 0.0625 * (1 + 0.5 * (k % 2)); /* never precise */
    assert_int_equal(rounds_of((struct measure_opts){.min_rounds = 2}), 4);
    for (int k = 0; k < ROUNDS_MAX; k++)
        script.seconds[0][k] = k ? 1.01 : 1; /* narrow enough by default */
    assert_int_equal(rounds_of((struct measure_opts){.budget_s = 1e9}), 6);
    for (int k = 0; k < ROUNDS_MAX; k++)
        script.seconds[0][k] = k ? 1.05 : 1;
    assert_int_equal(rounds_of((struct measure_opts){.budget_s = 1e9}), 25);
    /* an interval from 1 to 1.25 is as wide as a quarter of 1 */
    for (int k = 0; k < ROUNDS_MAX; k++)
        script.seconds[0][k] = k ? 1.25 : 1;
    o = never, o.min_s = 1e-9, o.min_rounds = 6;
    o.precise_frac = 0.25;
    assert_int_equal(rounds_of(o), 6);
    o.precise_frac = 0.2499;
    assert_true(rounds_of(o) > 6);
    memset(&script, 0, sizeof(script));
}

/* One that is surely slower leaves after the fewest rounds that are sure; one that is as fast in
 * some round stays, although the other rounds tell at the end. */
TEST(who_leaves)
{
    const struct measure_opts o = {.min_rounds = 6,
                                   .max_rounds = 12,
                                   .min_s = 1e9,
                                   .budget_s = 1e9,
                                   .clock = &clock_of_script};
    struct measure *m;

    for (int k = 0; k < ROUNDS_MAX; k++) {
        script.seconds[0][k] = 1;
        script.seconds[1][k] = 2;
        script.seconds[2][k] = k % 6 == 5 ? 1 : 2; /* its estimate is as low */
        script.seconds[3][k] = 1;                  /* the same */
    }
    m = compare(4, o);
    assert_true(script.n_of[0] == 13 && script.n_of[1] == 7 && script.n_of[2] == 13 &&
                script.n_of[3] == 13);
    assert_true(measure_surely_slower(m, 1, 0, 0) && measure_surely_slower(m, 2, 0, 0) &&
                !measure_surely_slower(m, 3, 0, 0) && !measure_surely_slower(m, 0, 0, 0));
    assert_true(measure_surely_slower(m, 1, 0, 0.99) &&
                !measure_surely_slower(m, 1, 0, 1));
    measure_close(&m);
    memset(&script, 0, sizeof(script));
}

/* Who left was surely slower than the fastest then. One that becomes the fastest later may share
 * no round with it that tells. */
TEST(who_left_was_slower)
{
    struct measure_report r;
    struct measure *m;

    for (int k = 0; k < ROUNDS_MAX; k++) {
        script.seconds[0][k] = 1;
        script.seconds[1][k] = 2;
        script.seconds[2][k] = k < 5 ? 2 : k == 5 ? 1 : 0.5;
    }
    m = compare(3, (struct measure_opts){.min_rounds = 6,
                                         .max_rounds = 12,
                                         .min_s = 1e9,
                                         .budget_s = 1e9,
                                         .clock = &clock_of_script});
    assert_int_equal(script.n_of[1], 7);
    assert_int_equal(measure_choose(m, NULL, 0), 2);
    measure_ratio(m, 2, 1, &r);
    assert_true(r.n == 6 && r.hi == 1);
    assert_true(measure_surely_slower(m, 1, 2, 0) &&
                !measure_surely_slower(m, 1, 2, 0.01));
    measure_close(&m);
    memset(&script, 0, sizeof(script));
}

/* ---- a CPU that was lost, by what the kernel counts */

TEST(lost_cpus)
{
    static const struct {
        long lost;
        double seconds;
        int rc;
        bool disturbed;
    } all[] = {{0, 0, 0, false},       {0, 1, 0, false},      {2, 1, 0, false},
               {3, 1, 0, true},        {1, 0.3, 0, true},     {1, 0.5, 0, false},
               {25, 10.001, 0, false}, {26, 10.001, 0, true}, {9, 1, -1, false}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct measure_report r;
        struct measure *m;

        memset(&script, 0, sizeof(script));
        script.n_switches = 1000;
        script.lost = all[i].lost;
        script.rusage_rc = all[i].rc;
        for (int k = 0; k < 6; k++)
            script.seconds[0][k] = all[i].seconds;
        m = compare(1, (struct measure_opts){MEASURE_EXACTLY(6)});
        measure_report(m, 0, &r);
        if (r.n_disturbed != (all[i].disturbed ? 6 : 0))
            fail_msg("row %zu: %d disturbed", i, r.n_disturbed);
        measure_close(&m);
        /* who brings a clock is not watched */
        m = compare(
            1, (struct measure_opts){MEASURE_EXACTLY(6), .clock = &measure_no_clock});
        measure_report(m, 0, &r);
        assert_int_equal(r.n_disturbed, 0);
        assert_int_equal(measure_no_clock.now_ns(NULL), 0);
        measure_close(&m);
    }
    memset(&script, 0, sizeof(script));
}

TEST(the_least_and_the_most)
{
    struct measure_opts o = {MEASURE_EXACTLY(1), .clock = &clock_of_script};
    struct measure *m;

    assert_ok(measure_open(&m, 1, 1));
    script.n_warm_up = 1;
    script.seconds[0][0] = 2;
    assert_ok(measure_compare(m, 1, &o, play, NULL));
    assert_int_equal(measure_choose(m, NULL, 0), 0);
    assert_err(measure_compare(m, 2, &o, play, NULL), ERR_ARG,
               "expected 1 to 1 in 1 to 1");
    o.max_rounds = -1;
    assert_err(measure_compare(m, 1, &o, play, NULL), ERR_ARG, "-1 rounds");
    measure_close(&m);
    assert_err(measure_open(&m, 1, 0), ERR_ARG, "1 alternatives in 0 rounds");
    assert_err(measure_open(&m, 0, 1), ERR_ARG, "0 alternatives in 1 rounds");
}
