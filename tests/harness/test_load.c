#include "tests/harness/rows.h"

#include "base/stats.h"
#include "experiments/harness/load.h"

static const struct load_process *process(const char *name)
{
    const struct load_process *p;

    assert_ok(load_process_find(name, &p));
    return p;
}

static void constant_is_a_grid(void **state)
{
    struct load_opts o = {.rate_rps = 8};
    double a[4];

    (void)state;
    process("constant")->arrivals(&o, 1, a, 4);
    for (int i = 0; i < 4; i++)
        assert_near(a[i], i * 0.125, 1e-12);
}

static void poisson_has_its_rate_and_spread(void **state)
{
    enum { N = 100000 };
    static double a[N], gap[N];
    struct load_opts o = {.rate_rps = 20};

    (void)state;
    process("poisson")->arrivals(&o, test_seed(), a, N);
    for (int i = 0; i < N; i++) {
        gap[i] = a[i] - (i ? a[i - 1] : 0);
        assert_true(gap[i] >= 0);
    }
    /* Mean and deviation of an exponential are both 1/rate; 5 sigma of N draws. */
    assert_near(stats_mean(gap, N), 0.05, 5 * 0.05 / sqrt(N));
    assert_near(stats_std(gap, N), 0.05, 0.05 * 0.03);
}

/* The seed alone decides; a sweep over rates stretches one pattern. */
static void poisson_is_seeded(void **state)
{
    struct load_opts slow = {.rate_rps = 1}, fast = {.rate_rps = 10};
    double a[50], b[50], c[50];

    (void)state;
    process("poisson")->arrivals(&slow, 7, a, 50);
    process("poisson")->arrivals(&fast, 7, b, 50);
    process("poisson")->arrivals(&slow, 8, c, 50);
    for (int i = 0; i < 50; i++)
        assert_near(a[i], b[i] * 10, 1e-9);
    assert_true(a[49] != c[49]);
}

static void closed_has_no_arrivals(void **state)
{
    (void)state;
    assert_null(process("closed")->arrivals);
}

/* Nanoseconds of every time that is accepted fit 64 bits, at the lowest rate, too. */
static void arrivals_have_an_end(void **state)
{
    static const char *const names[] = {"constant", "poisson"};
    struct load_opts o = {.rate_rps = LOAD_RATE_MIN_RPS};
    double a[200];

    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct load_process *p = process(names[i]);

        assert_ok(load_arrivals(p, &o, 1, a, 3));
        assert_true(a[2] * 1e9 < (double)INT64_MAX / 100);
        assert_err(load_arrivals(p, &o, 1, a, 200), ERR_LIMIT, "the last of 200 would");
        o.rate_rps = 1e-12;
        assert_err(load_arrivals(p, &o, 1, a, 2), ERR_LIMIT, "1e-12 requests a second");
        o.rate_rps = LOAD_RATE_MIN_RPS;
    }
}

static void senseless_options_are_refused(void **state)
{
    char open[] = "poisson", closed[] = "closed", wrong[] = "poison";
    struct load_opts o = {.process = open, .concurrency = 1};

    (void)state;
    assert_err(load_check(&o, "x.json: load"), ERR_ARG, "x.json: load.rate_rps");
    o.rate_rps = 1e-12;
    assert_err(load_check(&o, "x"), ERR_ARG, "at least 1e-06, found 1e-12");
    o.rate_rps = 3;
    assert_ok(load_check(&o, "x"));
    o.concurrency = 4;
    assert_err(load_check(&o, "x"), ERR_ARG, "concurrency");
    o.process = closed;
    assert_err(load_check(&o, "x"), ERR_ARG, "has no rate");
    o.rate_rps = 0;
    assert_ok(load_check(&o, "x"));
    o.process = wrong;
    assert_err(load_check(&o, "x"), ERR_NOTFOUND, "did you mean \"poisson\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_is_a_grid),
        cmocka_unit_test(poisson_has_its_rate_and_spread),
        cmocka_unit_test(poisson_is_seeded),
        cmocka_unit_test(closed_has_no_arrivals),
        cmocka_unit_test(arrivals_have_an_end),
        cmocka_unit_test(senseless_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
