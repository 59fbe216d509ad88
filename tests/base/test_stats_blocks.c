/* How often the interval of a block bootstrap holds the mean of a series whose neighbours
 * correlate: an AR(1). `test_stats_blocks 10000` makes 10000 series of each kind. */
#include "tests/support/test.h"

#include <math.h>

#include "base/stats_interval.h"

#define N_MAX 400

static int n_trials = 1000;

struct series {
    double sum[2 * N_MAX + 1]; /* of the values before, round and round */
    size_t n;
};

static void draw_series(struct series *s, double rho, struct rng *rng)
{
    double x[N_MAX], now = rng_normal(rng);

    for (size_t i = 0; i < s->n; i++) {
        x[i] = now;
        now = rho * now + sqrt(1 - rho * rho) * rng_normal(rng);
    }
    for (size_t i = 0; i < 2 * s->n; i++)
        s->sum[i + 1] = s->sum[i] + x[i % s->n];
}

/* The mean of blocks; the last may be cut short. */
static int draw_mean(void *ctx, struct rng *rng, size_t length, double *out)
{
    const struct series *s = ctx;

    *out = 0;
    for (size_t i = 0; i < s->n; i += length) {
        size_t from = (size_t)rng_below(rng, s->n);
        size_t n = s->n - i < length ? s->n - i : length;

        *out += (s->sum[from + n] - s->sum[from]) / (double)s->n;
    }
    return OK;
}

static int n_held(size_t n, double rho, struct rng *rng)
{
    int held = 0;

    for (int k = 0; k < n_trials; k++) {
        static struct series s;
        const struct stats_blocks b = {
            .n = n, .seed = rng_u64(rng), .stream = "mean", .ctx = &s, .draw = draw_mean};
        double half;
        size_t length;

        s.n = n;
        draw_series(&s, rho, rng);
        assert_ok(stats_blocks_half95(&half, &length, &b));
        assert_true(length >= stats_block_length(n) && length <= n / 5);
        held += fabs(s.sum[n] / (double)n) <= half;
    }
    return held;
}

/* 25 settings; a share that is .945 in truth is below .945 - 4 standard errors once in 30,000.
 * Regression: blocks had one length whatever the dependence, and intervals held the mean in .90 of
 * series with a correlation of .8. */
static void intervals_hold_the_mean(void **state)
{
    static const double rhos[] = {0, .3, .5, .7, .8};
    static const size_t sizes[] = {90, 120, 200, 300, N_MAX};
    struct rng rng;

    (void)state;
    rng_init(&rng, test_seed(), "blocks");
    for (int r = 0; r < 5; r++) {
        int held_of_rho = 0;

        for (int i = 0; i < 5; i++) {
            int held = n_held(sizes[i], rhos[r], &rng);

            print_message("# correlation %.1f, %zu values: %d of %d\n", rhos[r], sizes[i],
                          held, n_trials);
            if (held < (.945 - 4 * sqrt(.945 * .055 / n_trials)) * n_trials)
                fail_msg("correlation %.1f, %zu values: %d of %d intervals hold the mean",
                         rhos[r], sizes[i], held, n_trials);
            held_of_rho += held;
        }
        if (held_of_rho < (.945 - 4 * sqrt(.945 * .055 / n_trials / 5)) * 5 * n_trials)
            fail_msg("correlation %.1f: %d of %d intervals hold the mean", rhos[r],
                     held_of_rho, 5 * n_trials);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(intervals_hold_the_mean)};

    if (argc > 1)
        n_trials = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
