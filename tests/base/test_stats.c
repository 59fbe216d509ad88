#include "tests/support/test.h"

#include <float.h>
#include <math.h>

#include "base/stats.h"
#include "base/stats_interval.h"

#define same(a, b) assert_true(fabs((a) - (b)) <= 1e-12 * fabs((double)(b)))

TEST(known)
{
    const double x[] = {3, 1, 4, 1, 5, 9, 2, 6};
    const size_t n = 8;

    same(stats_mean(x, n), 3.875);
    same(stats_std(x, n), sqrt(52.875 / 7));
    same(stats_min(x, n), 1);
    same(stats_max(x, n), 9);
    same(stats_median(x, n), 3.5);
    same(stats_median(x, 7), 3);
    same(stats_mad(x, n), 2); /* 0.5 0.5 1.5 1.5 2.5 2.5 2.5 5.5 */
    same(stats_percentile(x, n, 0.5), 3);
    same(stats_percentile(x, n, 0.125), 1);
    same(stats_percentile(x, n, 0.126), 1);
    same(stats_percentile(x, n, 0.26), 2);
    same(stats_percentile(x, n, 1), 9);
    same(stats_percentile(x, n, 1e-300), 1);
    same(stats_geomean(x, 3), cbrt(12));
    assert_true(x[0] == 3 && x[7] == 6); /* not sorted in place */
}

/* Rank ceil(q n) exactly, although q n is rounded. */
TEST(nearest_rank)
{
    double x[1000];

    for (int i = 0; i < 1000; i++)
        x[i] = i + 1;
    for (size_t n = 1; n <= 1000; n += 9)
        for (int permille = 1; permille <= 1000; permille++) {
            size_t rank = (permille * n + 999) / 1000;
            double got = stats_percentile(x, n, permille / 1000.0);
            if (got != (double)rank)
                fail_msg("n %zu, q %d/1000: %g, wanted %zu", n, permille, got, rank);
        }
}

/* Values from tables of the Wilson score interval. */
TEST(shares)
{
    static const struct {
        size_t k, n;
        double lo, hi;
    } want[] = {{10, 10, 0.7225, 1},
                {0, 10, 0, 0.2775},
                {5, 10, 0.2366, 0.7634},
                {19, 20, 0.7639, 0.9911}};
    double lo, hi;

    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        stats_wilson95(want[i].k, want[i].n, &lo, &hi);
        assert_true(fabs(lo - want[i].lo) < 1e-4 && fabs(hi - want[i].hi) < 1e-4);
    }
    stats_wilson95(0, 0, &lo, &hi);
    assert_true(isnan(lo) && isnan(hi));
}

/* Student's t of 3 and of 62 values, 12.706 and more for two. */
TEST(intervals_of_means)
{
    const double a[] = {1, 2, 4}, b[] = {0, 2, 2}, one[] = {5};
    double pairs[3] = {1, 2, 4}, many[62];

    for (int i = 0; i < 62; i++)
        many[i] = i % 2;
    assert_true(fabs(stats_mean_half95(a, 3) - 3.79489) < 1e-3);
    assert_true(fabs(stats_mean_half95(many, 62) - 0.128013) < 1e-3);
    assert_true(isnan(stats_mean_half95(one, 1)));
    assert_true(fabs(stats_difference_half95(pairs, 3, b, 3, true) - 2.48434) < 1e-3);
    memcpy(pairs, a, sizeof(a));
    assert_true(fabs(stats_difference_half95(pairs, 3, b, 3, false) - 3.06898) < 1e-3);
    assert_true(fabs(stats_difference_half95(pairs, 3, one, 1, false) - 7.58978) < 1e-3);
}

TEST(undefined_is_nan)
{
    const double one[] = {1}, two[] = {1, NAN}, neg[] = {1, 0}, flat[] = {2, 2};

    assert_true(isnan(stats_mean(one, 0)));
    assert_true(isnan(stats_std(one, 1)));
    assert_true(isnan(stats_min(one, 0)) && isnan(stats_max(one, 0)));
    assert_true(isnan(stats_min(two, 2)) && isnan(stats_max(two, 2)));
    assert_true(isnan(stats_median(one, 0)) && isnan(stats_median(two, 2)));
    assert_true(isnan(stats_mad(one, 0)) && isnan(stats_mad(two, 2)));
    assert_true(isnan(stats_percentile(one, 0, 0.5)));
    assert_true(isnan(stats_percentile(one, 1, 0)) &&
                isnan(stats_percentile(one, 1, 1.1)));
    assert_true(isnan(stats_percentile(one, 1, NAN)));
    assert_true(isnan(stats_geomean(neg, 2)) && isnan(stats_geomean(one, 0)));
    assert_true(isnan(stats_spearman(one, one, 1)));
    assert_true(isnan(stats_spearman(flat, neg, 2)) &&
                isnan(stats_spearman(two, one, 1)));
}

TEST(extremes)
{
    const double big[] = {DBL_MAX, -DBL_MAX, 1, -1}, inf[] = {1, INFINITY};
    const double spread[] = {1e16, 1, -1e16}, top[] = {DBL_MAX, DBL_MAX};

    same(stats_max(big, 4), DBL_MAX);
    assert_true(stats_median(big, 4) == 0);
    same(stats_median(top, 2), DBL_MAX); /* their sum would overflow */
    assert_true(stats_mean(inf, 2) == INFINITY);
    assert_true(stats_max(inf, 2) == INFINITY);
    same(stats_mean(spread, 3), 1.0 / 3); /* the 1 is not lost */
    assert_true(isnan(stats_mad(inf, 1) - 1) == 0);
}

TEST(ranks)
{
    const double x[] = {10, 20, 30, 40, 50}, up[] = {1, 8, 27, 64, 125};
    const double down[] = {5, 4, 3, 2, 1}, ties[] = {1, 2, 2, 3, 3};

    same(stats_spearman(x, up, 5), 1);
    same(stats_spearman(x, down, 5), -1);
    /* ranks 0 1.5 1.5 3.5 3.5 against 0 1 2 3 4: 9 / sqrt(10 * 9) */
    same(stats_spearman(x, ties, 5), 9 / sqrt(90));
}

/* By all pairs. */
static double kendall_of_pairs(const double *x, const double *y, size_t n)
{
    double sum = 0, in_x = 0, in_y = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            int dx = (x[i] > x[j]) - (x[i] < x[j]), dy = (y[i] > y[j]) - (y[i] < y[j]);

            sum += dx * dy;
            in_x += dx != 0;
            in_y += dy != 0;
        }
    return in_x > 0 && in_y > 0 ? sum / sqrt(in_x * in_y) : NAN;
}

TEST(pairs_in_order)
{
    const double x[] = {1, 2, 3, 4, 5}, down[] = {9, 7, 5, 3, 1}, one[] = {4, 4, 4, 4, 4};
    const double y[] = {1, 3, 2, 4, 4};
    double a[60], b[60];
    struct rng r;

    same(stats_kendall(x, x, 5), 1);
    same(stats_kendall(x, down, 5), -1);
    same(stats_kendall(x, y, 5), 7 / sqrt(10 * 9)); /* 8 alike, 1 not, 1 tie */
    assert_true(isnan(stats_kendall(x, one, 5)) && isnan(stats_kendall(x, x, 1)));
    rng_init(&r, test_seed(), "pairs");
    for (int k = 0; k < 200; k++) {
        size_t n = 2 + rng_below(&r, 58), kinds = 1 + rng_below(&r, 40);
        double want;

        for (size_t i = 0; i < n; i++) {
            a[i] = (double)rng_below(&r, kinds);
            b[i] = (double)rng_below(&r, kinds) + a[i] * (double)rng_below(&r, 2);
        }
        want = kendall_of_pairs(a, b, n);
        if (isnan(want))
            assert_true(isnan(stats_kendall(a, b, n)));
        else
            same(stats_kendall(a, b, n), want);
    }
}

TEST(floors)
{
    assert_int_equal(stats_percentile_floor(0.5), 1);
    assert_int_equal(stats_percentile_floor(0.9), 1);
    assert_int_equal(stats_percentile_floor(0.95), 72);
    assert_int_equal(stats_percentile_floor(0.99), 368);
    assert_int_equal(stats_percentile_floor(0.999), 3688);
    assert_true(stats_percentile_floor(1) == SIZE_MAX);
}

TEST(short_memory_is_nan)
{
    const double x[] = {1, 2, 3};

    for (long k = 0; k < 3; k++) {
        mem_fail_after(k, 1);
        assert_true(isnan(stats_spearman(x, x, 3)));
        mem_fail_after(k, 1);
        assert_true(isnan(stats_kendall(x, x, 3)) == (k < 2));
        mem_fail_after(-1, 0);
    }
    mem_fail_after(0, 0);
    assert_true(isnan(stats_percentile(x, 3, 0.5)));
    assert_true(isnan(stats_median(x, 3)) && isnan(stats_mad(x, 3)));
    mem_fail_after(-1, 0);
}
