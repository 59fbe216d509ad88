/* Ridge regression gives the weights that elimination gives, and refuses features that depend on
 * each other. */
#include <math.h>

#include "base/ridge.h"
#include "base/rng.h"
#include "tests/support/test.h"

#define D    24
#define T    3
#define ROWS 400

/* (X'X + lambda n) w = X'y by elimination with pivots, another way. */
static void eliminate(double w[T][D], double x[ROWS][D], double y[ROWS][T], double lambda)
{
    for (int t = 0; t < T; t++) {
        double a[D][D + 1] = {{0}};

        for (int i = 0; i < D; i++) {
            for (int r = 0; r < ROWS; r++) {
                for (int j = 0; j < D; j++)
                    a[i][j] += x[r][i] * x[r][j];
                a[i][D] += x[r][i] * y[r][t];
            }
            a[i][i] += lambda * ROWS;
        }
        for (int i = 0; i < D; i++) {
            int best = i;

            for (int r = i; r < D; r++)
                best = fabs(a[r][i]) > fabs(a[best][i]) ? r : best;
            for (int j = 0; j <= D; j++) {
                double v = a[i][j];

                a[i][j] = a[best][j];
                a[best][j] = v;
            }
            for (int r = 0; r < D; r++)
                for (int j = D; j >= i && r != i; j--)
                    a[r][j] -= a[r][i] / a[i][i] * a[i][j];
        }
        for (int i = 0; i < D; i++)
            w[t][i] = a[i][D] / a[i][i];
    }
}

TEST(weights_equal_elimination)
{
    static double x[ROWS][D], y[ROWS][T];
    const double lambdas[] = {0.001, 0.01, 1};
    struct rng rng;

    rng_init(&rng, test_seed(), "ridge");
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < D; i++) /* some are 0, as hashed features are */
            x[r][i] = i && rng_below(&rng, 3) ? rng_normal(&rng) : i == 0;
        for (int t = 0; t < T; t++)
            y[r][t] = x[r][1] - 2 * x[r][2] * t + rng_normal(&rng);
    }
    for (int k = 0; k < 3; k++) {
        struct stats_ridge r;
        double w[T][D];

        assert_ok(stats_ridge_init(&r, D, T));
        for (int i = 0; i < ROWS; i++)
            stats_ridge_add(&r, x[i], y[i]);
        assert_ok(stats_ridge_solve(&r, lambdas[k] * ROWS));
        eliminate(w, x, y, lambdas[k]);
        for (int t = 0; t < T; t++)
            for (int i = 0; i < D; i++)
                if (!(fabs(r.weights[t * D + i] - w[t][i]) < 1e-9))
                    fail_msg("lambda %g: weight %d of target %d is %g, expected %g",
                             lambdas[k], i, t, r.weights[t * D + i], w[t][i]);
        stats_ridge_fini(&r);
    }
}

TEST(dependent_features_are_refused)
{
    const double x[2] = {1, 2}, y[1] = {3};
    struct stats_ridge r;

    assert_ok(stats_ridge_init(&r, 2, 1));
    stats_ridge_add(&r, x, y);
    assert_err(stats_ridge_solve(&r, 0), ERR_ARG, "feature 1 depends");
    stats_ridge_fini(&r);
}

TEST(nothing_is_expected_of_no_examples)
{
    const double x[2] = {1, 2};
    struct stats_ridge r;

    assert_ok(stats_ridge_init(&r, 2, 1));
    assert_ok(stats_ridge_solve(&r, 1));
    assert_true(stats_ridge_predict(&r, x) == 0);
    stats_ridge_fini(&r);
}
