/* Variance components: a balanced layout by the textbook's mean squares, planted components found
 * again in unbalanced ones, none where numbers are exchanged. */
#include <math.h>

#include "base/stats_nested.h"
#include "tests/support/test.h"

/* 3 groups of 2 numbers: the mean squares of a one-way analysis of variance. */
TEST(one_way_by_hand)
{
    static const double y[] = {1, 3, 4, 8, 9, 11};
    static const int group[] = {5, 5, 7, 7, 2, 2};
    struct stats_nested s = {.n_levels = 1};
    double c[2];

    /* means 2, 6, 10; within: (2 + 8 + 2) / 3 = 4; between: 2 * (16 + 0 + 16) / 2 = 32 */
    stats_nested_add(&s, y, group, 6);
    stats_nested_solve(&s, c);
    assert_true(fabs(c[1] - 4) < 1e-9);
    assert_true(fabs(c[0] - (32 - 4) / 2.0) < 1e-9);
}

#define N 600

/* Kinds, machines and days of random numbers; group sizes differ. sd 0.3, 0.2, 0.1 and 0.05. */
static size_t draw(double *y, int *group, struct rng *r)
{
    size_t n = 0;

    for (int kind = 0; n + 64 < N; kind++) {
        double k = 0.3 * rng_normal(r);

        for (int m = 0, n_m = 1 + (int)rng_below(r, 4); m < n_m; m++) {
            double machine = 0.2 * rng_normal(r);

            for (int d = 0, n_d = 1 + (int)rng_below(r, 4); d < n_d; d++) {
                double day = 0.1 * rng_normal(r);

                for (int i = 0, n_i = 1 + (int)rng_below(r, 4); i < n_i; i++, n++) {
                    y[n] = 2 + k + machine + day + 0.05 * rng_normal(r);
                    group[3 * n] = kind;
                    group[3 * n + 1] = m;
                    group[3 * n + 2] = d;
                }
            }
        }
    }
    return n;
}

static double y[N];
static int group[3 * N];

TEST(planted_components_are_found)
{
    static const double sd[] = {0.3, 0.2, 0.1, 0.05};
    struct stats_nested s = {.n_levels = 3};
    struct rng r;
    double c[4];

    rng_init(&r, 1, "nested");
    for (int i = 0; i < 100; i++) { /* series, each with a mean of its own */
        size_t n = draw(y, group, &r);

        for (size_t k = 0; k < n; k++)
            y[k] += 5 * i;
        stats_nested_add(&s, y, group, n);
    }
    stats_nested_solve(&s, c);
    for (int l = 0; l < 4; l++)
        if (fabs(c[l] / (sd[l] * sd[l]) - 1) > 0.1)
            fail_msg("component %d: %g, planted %g", l, c[l], sd[l] * sd[l]);
}

TEST(exchanged_numbers_have_no_component)
{
    struct stats_nested s = {.n_levels = 3};
    struct rng r;
    double c[4];

    rng_init(&r, 2, "nested");
    for (int i = 0; i < 30; i++) {
        size_t n = draw(y, group, &r);

        for (size_t k = n - 1; k > 0; k--) {
            size_t other = (size_t)rng_below(&r, k + 1);
            double kept = y[k];

            y[k] = y[other];
            y[other] = kept;
        }
        stats_nested_add(&s, y, group, n);
    }
    stats_nested_solve(&s, c);
    assert_true(fabs(c[0]) < 0.01); /* of 0.09 + 0.04 + 0.01 in all */
    assert_true(fabs(c[3] - 0.1425) < 0.02);
}

/* A set of one small series counts as much as one of a large series: the mean of both. */
TEST(sets_count_evenly)
{
    static const double few[] = {1, 3}, many[] = {2, 8, 2, 8, 2, 8, 2, 8};
    static const int one[8] = {0};
    struct stats_nested a = {.n_levels = 1}, b = {.n_levels = 1}, all = {.n_levels = 1};
    double c[2], of_a[2], of_b[2];

    stats_nested_add(&a, few, one, 2);
    stats_nested_add(&b, many, one, 8);
    stats_nested_solve(&a, of_a);
    stats_nested_solve(&b, of_b);
    stats_nested_add_evenly(&all, &a);
    stats_nested_add_evenly(&all, &b);
    stats_nested_solve(&all, c);
    assert_true(fabs(of_a[1] - 2) < 1e-9 && fabs(of_b[1] - 72.0 / 7) < 1e-9);
    assert_true(fabs(c[1] - (of_a[1] + of_b[1]) / 2) < 1e-9);
    assert_true(isnan(c[0]));
}

TEST(what_cannot_be_known_is_missing)
{
    static const double three[] = {1, 2, 3};
    static const int groups[] = {1, 1, 1, 2, 1, 3}; /* one kind, three machines */
    struct stats_nested s = {.n_levels = 2};
    double c[3];

    stats_nested_add(&s, three, groups, 3);
    stats_nested_solve(&s, c);
    assert_true(isnan(c[2])); /* no machine has two numbers */
    assert_true(fabs(c[1] - 1) < 1e-9);
    assert_true(isnan(c[0])); /* there is one kind */
}
