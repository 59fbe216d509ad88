/* Models of measured points give back what made them, and their errors are those of points that
 * were not fitted. */
#include <math.h>

#include "hetero/fit.h"
#include "tests/support/test.h"

#define N 66

static void make_points(struct hetero_point p[N], const struct hetero_regimes *m,
                        double noise, struct rng *r)
{
    for (int i = 0; i < N; i++) {
        double weights = 1e6 * (1 + i % 6);

        p[i] = (struct hetero_point){weights, (double)(1 << i / 6), 2 * weights, 0};
        p[i].seconds = hetero_regimes_s(m, &p[i]) * exp(noise * rng_normal(r));
    }
}

TEST(two_regimes_are_found)
{
    struct rng r;

    rng_init(&r, test_seed(), "regimes");
    for (int i = 0; i < 200; i++) {
        const struct hetero_regimes m = {1e-5 * rng_f64(&r), 1e9 * (5 + 50 * rng_f64(&r)),
                                         1e9 * (60 + 300 * rng_f64(&r))};
        struct hetero_point p[N];
        struct hetero_regimes got;

        make_points(p, &m, 0, &r);
        assert_ok(hetero_regimes_fit(&got, p, N));
        assert_true(fabs(got.start_s - m.start_s) < 1e-8);
        assert_true(fabs(got.bytes_per_s / m.bytes_per_s - 1) < 1e-3);
        assert_true(fabs(got.macs_per_s / m.macs_per_s - 1) < 1e-3);
        make_points(p, &m, 0.03, &r);
        assert_ok(hetero_regimes_fit(&got, p, N));
        for (int k = 0; k < N; k++)
            assert_true(fabs(hetero_regimes_s(&got, &p[k]) / hetero_regimes_s(&m, &p[k]) -
                             1) < 0.1);
    }
}

/* A line through points of two regimes has an r2 near 1 and is far off at one token, where the
 * time is that of reading. */
TEST(one_line_does_not_fit_both)
{
    const struct hetero_regimes m = {1e-6, 20e9, 50e9};
    struct hetero_point p[N];
    struct hetero_fit f;
    struct rng r;

    rng_init(&r, test_seed(), "line");
    make_points(p, &m, 0.02, &r);
    assert_ok(hetero_fit(&f, p, N, 1));
    assert_true(f.line.r2 > 0.99 && f.line_one_tok > 0.5);
    assert_true(f.regimes_one_tok < 0.05 && f.regimes_errors.median < 0.05);
    assert_true(f.regimes_errors.p95_log < 0.15 && f.line_errors.p95_log > 0.4);
    assert_int_equal(f.n_points, N);
}

TEST(a_line_is_found)
{
    struct hetero_line l;
    struct hetero_point p[4];

    for (int i = 0; i < 4; i++)
        p[i] = (struct hetero_point){.bytes = 1000.0 * (i + 1),
                                     .seconds = 3e-6 + 1000.0 * (i + 1) * 1e-9};
    assert_ok(hetero_line_fit(&l, p, 4));
    assert_true(fabs(l.start_s - 3e-6) < 1e-12 && fabs(l.s_per_unit - 1e-9) < 1e-15);
    assert_true(fabs(l.r2 - 1) < 1e-9);
    for (int i = 0; i < 4; i++)
        p[i].seconds -= 1e-5; /* a start below 0 */
    assert_ok(hetero_line_fit(&l, p, 4));
    assert_true(l.start_s == 0);
    assert_err(hetero_line_fit(&l, p, 1), ERR_ARG, "1 points");
}

/* What was fitted says nothing of the errors: with noise that a model cannot know, points that were
 * left out are off by as much as the noise. */
TEST(errors_are_of_points_that_were_not_fitted)
{
    const struct hetero_regimes m = {0, 20e9, 50e9};
    struct hetero_point p[N];
    struct hetero_fit f, again;
    struct rng r;

    rng_init(&r, test_seed(), "errors");
    make_points(p, &m, 0, &r);
    assert_ok(hetero_fit(&f, p, N, 1));
    assert_true(f.regimes_errors.median < 1e-6);
    make_points(p, &m, 0.3, &r);
    assert_ok(hetero_fit(&f, p, N, 1));
    assert_true(f.regimes_errors.median > 0.05 && f.regimes_errors.p95_log > 0.2);
    assert_ok(hetero_fit(&again, p, N, 1));
    assert_memory_equal(&again, &f, sizeof(f));
    assert_err(hetero_fit(&f, p, 9, 1), ERR_ARG, "9 points");
}

TEST(memory_alone_or_computing_alone)
{
    struct hetero_point p[12];
    struct hetero_regimes r;

    for (int i = 0; i < 12; i++)
        p[i] = (struct hetero_point){1e6 * (i + 1), 1, 2e6 * (i + 1), 1e-4 * (i + 1)};
    assert_ok(hetero_regimes_fit(&r, p, 12));
    for (int i = 0; i < 12; i++)
        assert_true(fabs(hetero_regimes_s(&r, &p[i]) / p[i].seconds - 1) < 1e-6);
}
