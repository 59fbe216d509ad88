/* The confidence sequence: its values by hand, and how often it holds the mean although somebody
 * looks after every value. `test_stats_sequence 20000` makes as many trials of each kind. */
#include <math.h>

#include "base/rng.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "base/stats_sequence.h"
#include "tests/support/test.h"

enum { MAX_VALUES = 60 };

static int n_trials = 1000;

static void assert_near(double found, double wanted, double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance))
        fail_msg("found %.12g, wanted %.12g within %g", found, wanted, tolerance);
}

/* The likelihood ratio that the header states. */
static double likelihood_ratio(double t_squared, size_t n, double g)
{
    double df = (double)n - 1, grown = 1 + (double)n * g;

    return pow(grown, -0.5) *
           pow((1 + t_squared / df) / (1 + t_squared / (df * grown)), (double)n / 2);
}

/* At its ends the ratio is 20. */
static void ends_where_the_ratio_is_20(void **state)
{
    static const double x[] = {0.31, -0.2, 0.57, 0.11, -0.4, 0.05,
                               0.9,  -0.1, 0.25, 0.33, 0.02, -0.7};
    const size_t n = sizeof(x) / sizeof(x[0]);

    (void)state;
    for (size_t k = STATS_SEQUENCE_LEAST; k <= n; k++) {
        double half = stats_sequence_half95(x, k), s = stats_std(x, k);

        assert_near(likelihood_ratio((double)k * half * half / (s * s), k, 4), 20, 1e-6);
    }
    /* 5 values of deviation sqrt(2.5): 2.3962 of them. */
    assert_near(stats_sequence_half95((const double[]){1, 2, 3, 4, 5}, 5),
                2.3962 * sqrt(2.5), 1e-3);
}

static void too_few_and_no_values(void **state)
{
    const double x[] = {1, 2, 4, 8, NAN}, same[] = {3, 3, 3, 3};

    (void)state;
    for (size_t n = 0; n < STATS_SEQUENCE_LEAST; n++)
        assert_true(isinf(stats_sequence_half95(x, n)));
    assert_true(isfinite(stats_sequence_half95(x, 4)));
    assert_true(isnan(stats_sequence_half95(x, 5)));
    assert_near(stats_sequence_half95(same, 4), 0, 0);
    /* wider than Student's, which allows one look */
    assert_true(stats_sequence_half95(x, 4) > stats_mean_half95(x, 4));
}

/* --- under peeking */

typedef double (*draw_fn)(struct rng *rng); /* of mean 0 */

static double draw_t(int df, struct rng *rng)
{
    return rng_normal(rng) / sqrt(rng_gamma(rng, df / 2.0) / (df / 2.0));
}

static double normal(struct rng *rng)
{
    return rng_normal(rng);
}

static double tails(struct rng *rng)
{
    return draw_t(3, rng);
}

static double heavy_tails(struct rng *rng)
{
    return draw_t(2, rng);
}

static double even(struct rng *rng)
{
    return rng_f64(rng) - 0.5;
}

static double two_values(struct rng *rng)
{
    return rng_below(rng, 2) ? 1 : -1;
}

static double slowed(struct rng *rng)
{
    return 0.05 * rng_normal(rng) + (rng_f64(rng) < 0.15 ? 0.5 * rng_f64(rng) : 0);
}

/* Two runs, either of which a burst may hit. */
static double bursts(struct rng *rng)
{
    return slowed(rng) - slowed(rng);
}

/* Two runs, each of which is only ever slowed. */
static double waits(struct rng *rng)
{
    return rng_exp(rng) - rng_exp(rng);
}

/* The deviation is another for each value. */
static double uneven(struct rng *rng)
{
    return rng_normal(rng) * exp(0.7 * rng_normal(rng));
}

/* A logarithm of what is lognormal and has tails to one side as well. */
static double skewed(struct rng *rng)
{
    return rng_gamma(rng, 4) - 4;
}

static const struct {
    const char *what;
    draw_fn draw;
} kinds[] = {{"normal", normal},
             {"tails", tails},
             {"heavy tails", heavy_tails},
             {"even", even},
             {"two values", two_values},
             {"bursts", bursts},
             {"waits", waits},
             {"uneven deviations", uneven},
             {"skewed", skewed}};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* A run with as many repeats as it needs has at least these. Of four values that are one of two,
 * all are equal in an eighth of the trials, and without spread there is no width. */
#define LEAST 6

/* What ends the values. */
struct stop {
    const char *what;
    bool missed;   /* the worst: as soon as the interval misses the mean */
    double narrow; /* else: half of the interval is at most so many deviations */
};

static bool holds(int kind, const struct stop *s, bool student, double deviation,
                  struct rng *rng)
{
    double x[MAX_VALUES], half = INFINITY;
    bool held = true;

    for (size_t n = 1; n <= MAX_VALUES; n++) {
        x[n - 1] = kinds[kind].draw(rng);
        if (n < LEAST)
            continue;
        half = student ? stats_mean_half95(x, n) : stats_sequence_half95(x, n);
        held = fabs(stats_mean(x, n)) <= half;
        if (s->missed ? !held : half <= s->narrow * deviation)
            break;
    }
    return held;
}

static double deviation_of(draw_fn draw)
{
    static double x[20000];
    struct rng rng;

    rng_init(&rng, 1, "deviation");
    for (size_t i = 0; i < 20000; i++)
        x[i] = draw(&rng);
    return stats_std(x, 20000);
}

static void holds_the_mean_under_peeking(void **state)
{
    static const struct stop stops[] = {{"as soon as it misses", true, 0},
                                        {"half a deviation", false, 0.5},
                                        {"a deviation", false, 1},
                                        {"two deviations", false, 2}};
    int n_student = 0;

    (void)state;
    for (int i = 0; i < N_KINDS; i++)
        for (size_t k = 0; k < sizeof(stops) / sizeof(stops[0]); k++) {
            double deviation = deviation_of(kinds[i].draw), least;
            struct rng rng;
            int n = 0;

            rng_init(&rng, test_seed(), kinds[i].what);
            for (int t = 0; t < n_trials; t++)
                n += holds(i, &stops[k], false, deviation, &rng);
            for (int t = 0; t < n_trials && stops[k].missed; t++)
                n_student += holds(i, &stops[k], true, deviation, &rng);
            print_message("%s, %s: %.1f %%\n", kinds[i].what, stops[k].what,
                          100.0 * n / n_trials);
            /* The rule that looks for a miss has the 95 % themselves, or for two values a
             * little less: at most 4 standard errors below. */
            least = stops[k].missed ? 0.95 - 4 * sqrt(0.95 * 0.05 / n_trials) : 0.94;
            if (n < least * n_trials)
                fail_msg("%s, %s: %d of %d hold the mean", kinds[i].what, stops[k].what,
                         n, n_trials);
        }
    /* For one look Student's interval is right; for many it is not, and this test sees it. */
    print_message("Student's: %.1f %%\n", 100.0 * n_student / n_trials / N_KINDS);
    assert_true(n_student < 0.9 * n_trials * N_KINDS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_where_the_ratio_is_20),
        cmocka_unit_test(too_few_and_no_values),
        cmocka_unit_test(holds_the_mean_under_peeking),
    };

    if (argc > 1)
        n_trials = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
