/* The A/A of a comparison: what it could have seen, by hand, and how often two equal settings are
 * told apart under noise of many kinds, without a clock. `test_compare_aa 2000` makes 2000 trials
 * of each kind and prints how often, with the A/A and without it. */
#include "tests/metrics/noise.h"
#include "tests/metrics/rows.h"

static int n_trials = 100;

/* --- by hand */

#define LOGS(...) ((const double[]){__VA_ARGS__})

/* Two restarts of each; A has the logarithms 0 and 0. */
static struct compare_result with_arm(double again_0, double again_1, double b,
                                      bool higher, double margin)
{
    struct side x, y, z;
    const struct compare_opts o = {.metric = "step_s",
                                   .higher_is_better = higher,
                                   .margin_frac = margin,
                                   .aa_source = COMPARE_AA_ARM,
                                   .aa = side_of(&z, LOGS(again_0, again_1), 2)};
    struct compare_result r;

    assert_ok(
        compare_metric(&r, side_of(&x, LOGS(0, 0), 2), side_of(&y, LOGS(b, b), 2), &o));
    return r;
}

/* A again at 0.02 and 0.04: their mean is 0.03, each deviates by 0.01, the pooled deviation is
 * 0.01, its error times sqrt(1/2 + 1/2), 2 degrees of freedom. */
static void detectable_is_the_difference_and_half_the_width(void **state)
{
    const double half = 4.303 * 0.01, seen = 0.03 + half;
    struct compare_result r = with_arm(0.02, 0.04, 0.2, false, 0.05);

    (void)state;
    assert_near(r.aa.ratio, exp(0.03), 1e-12);
    assert_near(r.aa.lo, exp(0.03 - half), 1e-12);
    assert_near(r.aa.hi, exp(0.03 + half), 1e-12);
    assert_near(log1p(r.aa.detectable_frac), seen, 1e-12);
    /* faster again is as much a difference */
    r = with_arm(-0.02, -0.04, 0.2, false, 0.05);
    assert_near(log1p(r.aa.detectable_frac), seen, 1e-12);
}

static void verdicts_round_what_can_be_seen(void **state)
{
    const double seen = 0.03 + 4.303 * 0.01;
    static const struct {
        double of_seen; /* B's logarithm */
        bool higher;
        double margin;
        enum compare_verdict want;
        bool maybe_worse;
    } all[] = {
        {1.001, false, 0.05, COMPARE_WORSE, true},
        {0.999, false, 0.05, COMPARE_UNKNOWN, true},
        {-1.001, false, 0.05, COMPARE_BETTER, false},
        {-0.999, false, 0.05, COMPARE_UNKNOWN, true},
        {1.001, true, 0.05, COMPARE_BETTER, false},
        {-1.001, true, 0.05, COMPARE_WORSE, true},
        /* what is within the margin needs no A/A */
        {-0.999, false, 0.076, COMPARE_SAME, false},
        {0.5, false, 0.05, COMPARE_SAME, false},
        {-0.999, true, 0.05, COMPARE_UNKNOWN, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct compare_result r =
            with_arm(0.02, 0.04, all[i].of_seen * seen, all[i].higher, all[i].margin);
        bool cut = all[i].want == COMPARE_UNKNOWN;

        if (r.verdict != all[i].want || r.maybe_worse != all[i].maybe_worse)
            fail_msg("row %zu: %s", i, compare_verdict_name(r.verdict));
        assert_true((strstr(r.why, "between A and A") != NULL) == cut);
    }
}

static struct compare_result with_halves(const double *a, size_t n, double b,
                                         bool in_turn)
{
    struct side x, y;
    double logs[16];
    const struct compare_opts o = {.metric = "step_s",
                                   .in_turn = in_turn,
                                   .margin_frac = 0.05,
                                   .aa_source = COMPARE_AA_HALVES};
    struct compare_result r;

    for (size_t i = 0; i < n; i++)
        logs[i] = a[i] + b;
    assert_ok(compare_metric(&r, side_of(&x, a, n), side_of(&y, logs, n), &o));
    return r;
}

/* The even restarts are 0, 0.01 and 0.02, the odd ones 0.03, 0.04 and 0.05. */
static void halves_of_the_restarts(void **state)
{
    static const double a[] = {0, 0.03, 0.01, 0.04, 0.02, 0.05, 9, 9};
    const double half = 2.776 * 0.01 * sqrt(2 / 3.0);
    struct compare_result r = with_halves(a, 6, 0.5, false);

    (void)state;
    assert_near(r.aa.ratio, exp(0.03), 1e-9);
    assert_near(log1p(r.aa.detectable_frac), 0.03 + half, 1e-4);
    assert_int_equal(r.verdict, COMPARE_WORSE);
    r = with_halves(a, 7, 0, false); /* the last one has no partner */
    assert_near(r.aa.ratio, exp(0.03), 1e-9);
    r = with_halves(a, 6, 0.5, true); /* in pairs they differ by 0.03 */
    assert_near(log1p(r.aa.detectable_frac), 0.03, 1e-9);
    r = with_halves(a, 6, 0.029, true);
    assert_int_equal(r.verdict, COMPARE_SAME);
    r = with_halves(a, 5, 0.5, false);
    assert_true(isnan(r.aa.detectable_frac));
    assert_non_null(strstr(r.aa.why, "needs 6 restarts"));
    assert_int_equal(r.verdict, COMPARE_WORSE); /* as without an A/A */
}

static void repeats_stay_with_their_restart(void **state)
{
    struct compare_run a[12];
    const struct compare_side side = {a, 12};
    const struct compare_opts o = {
        .metric = "step_s", .margin_frac = 0.05, .aa_source = COMPARE_AA_HALVES};
    struct compare_result r;

    (void)state;
    for (int i = 0; i < 12; i++) /* of an odd restart 0.1 and 0.3, else 0 and 0.2 */
        a[i] = (struct compare_run){.restart = i / 2,
                                    .value = exp(i / 2 % 2 * 0.1 + i % 2 * 0.2)};
    assert_ok(compare_metric(&r, &side, &side, &o));
    assert_near(r.aa.ratio, exp(0.1), 1e-9);
    assert_near(log1p(r.aa.detectable_frac), 0.1, 1e-9);
}

static void what_has_no_aa(void **state)
{
    struct side x, y, z;
    struct compare_opts o = {.metric = "step_s", .margin_frac = 0.05};
    struct compare_result r;

    (void)state;
    side_of(&x, LOGS(0, 0), 2);
    side_of(&y, LOGS(1, 1), 2);
    side_of(&z, LOGS(0), 1);
    assert_ok(compare_metric(&r, &x.side, &y.side, &o));
    assert_string_equal(r.aa.why, "there is no A/A");
    assert_true(isnan(r.aa.ratio) && isnan(r.aa.lo) && isnan(r.aa.hi));
    assert_int_equal(r.verdict, COMPARE_WORSE);
    /* A second arm that knows nothing supports no verdict. */
    o.aa_source = COMPARE_AA_ARM;
    o.aa = &z.side;
    assert_ok(compare_metric(&r, &x.side, &y.side, &o));
    assert_int_equal(r.verdict, COMPARE_UNKNOWN);
    assert_string_equal(r.why,
                        "an A/A of one restart does not know what a restart changes");
    o.aa = side_of(&z, LOGS(0, 0), 2);
    z.runs[1].value = NAN;
    assert_ok(compare_metric(&r, &x.side, &y.side, &o));
    assert_true(isnan(r.aa.detectable_frac) && r.aa.why[0]);
    assert_int_equal(r.verdict, COMPARE_UNKNOWN);
    assert_true(r.maybe_worse);
    /* Nothing but 0 everywhere is no noise. */
    for (int i = 0; i < 2; i++)
        x.runs[i].value = y.runs[i].value = z.runs[i].value = 0;
    assert_ok(compare_metric(&r, &x.side, &y.side, &o));
    assert_int_equal(r.verdict, COMPARE_SAME);
    assert_near(r.aa.detectable_frac, 0, 0);
}

/* --- under noise */

static const struct noise all_noise[] = {
    {"lognormal restarts", 5, true, 0.1, 0, 0, 0, 0, 0, 0},
    {"lognormal restarts, 2 rounds", 2, true, 0.1, 0, 0, 0, 0, 0, 0},
    {"lognormal restarts, 1 round", 1, true, 0.1, 0, 0, 0, 0, 0, 0},
    {"lognormal restarts, 12 rounds", 12, true, 0.1, 0, 0, 0, 0, 0, 0},
    {"a machine that drifts at random", 5, true, 0.01, 0, 0.05, 0, 0, 0, 0},
    {"a machine that gets slower", 5, true, 0.01, 0, 0, 0.02, 0, 0, 0},
    {"bursts of one run", 5, true, 0.02, 0, 0, 0, 0.5, 1, 0},
    {"bursts of many runs", 5, true, 0.02, 0, 0, 0, 0.5, 4, 0},
    {"bursts of many runs, 10 rounds", 10, true, 0.02, 0, 0, 0, 0.5, 4, 0},
    {"heavy tails", 5, true, 0.03, 2, 0, 0, 0, 0, 0},
    {"tails without a mean, 8 rounds", 8, true, 0.03, 1, 0, 0, 0, 0, 0},
    {"only ever slower", 5, true, 0.005, 0, 0, 0, 0, 0, 0.1},
    {"all of it", 6, true, 0.03, 3, 0.03, 0.01, 0.3, 3, 0.05},
    {"records: lognormal restarts", 6, false, 0.1, 0, 0, 0, 0, 0, 0},
    {"records: bursts", 8, false, 0.02, 0, 0, 0, 0.5, 2, 0},
    {"records: a machine that drifts", 8, false, 0.01, 0, 0.05, 0, 0, 0, 0},
};

static enum compare_verdict trial(const struct noise *s, double ratio, bool with_aa,
                                  struct rng *rng)
{
    double logs[N_ARMS][MAX_ROUNDS];
    size_t n = (size_t)s->n_rounds;
    struct side x, y, z;
    struct compare_opts o = {.metric = "step_s",
                             .in_turn = true,
                             .margin_frac = 0.02,
                             .aa_source = !with_aa ? COMPARE_AA_NONE
                                          : s->arm ? COMPARE_AA_ARM
                                                   : COMPARE_AA_HALVES,
                             .aa_in_turn = true};
    struct compare_result r;

    draw_runs(logs, s, s->arm ? N_ARMS : 2, rng);
    for (size_t i = 0; i < n; i++)
        logs[1][i] += log(ratio);
    o.aa = side_of(&z, logs[2], s->arm ? n : 0);
    assert_ok(compare_metric(&r, side_of(&x, logs[0], n), side_of(&y, logs[1], n), &o));
    return r.verdict;
}

/* Trials of which a verdict says that B is better or worse. */
static int n_told_apart(const struct noise *s, double ratio, bool with_aa,
                        const char *stream)
{
    struct rng rng;
    int n = 0;

    rng_init(&rng, test_seed(), stream);
    for (int k = 0; k < n_trials; k++) {
        enum compare_verdict v = trial(s, ratio, with_aa, &rng);

        n += v == COMPARE_BETTER || v == COMPARE_WORSE;
        if (ratio > 1 && v == COMPARE_BETTER)
            fail_msg("%s: a slower B is better", s->what);
    }
    return n;
}

static void equal_settings_are_not_told_apart(void **state)
{
    int n_with = 0, n_without = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(all_noise) / sizeof(all_noise[0]); i++) {
        const struct noise *s = &all_noise[i];
        int n = n_told_apart(s, 1, true, s->what);
        int without = n_told_apart(s, 1, false, s->what);

        n_with += n;
        n_without += without;
        print_message("%s: %.1f %% are told apart; without the A/A %.1f %%\n", s->what,
                      100.0 * n / n_trials, 100.0 * without / n_trials);
        if (n > 0.05 * n_trials)
            fail_msg("%s: %d of %d equal settings are told apart", s->what, n, n_trials);
    }
    assert_true(4 * n_with < n_without); /* which is what the A/A is for */
}

/* B takes as long as this, ten deviations of a restart and more. */
static void real_differences_are_found(void **state)
{
    static const struct {
        struct noise noise;
        double ratio;
    } all[] = {
        {{"restarts", 5, true, 0.02, 0, 0, 0, 0, 0, 0}, 1.3},
        {{"3 rounds", 3, true, 0.02, 0, 0, 0, 0, 0, 0}, 1.6},
        {{"drift", 5, true, 0.01, 0, 0.03, 0, 0, 0, 0}, 1.5},
        {{"tails", 6, true, 0.01, 3, 0, 0, 0, 0, 0}, 1.3},
        {{"bursts", 10, true, 0.02, 0, 0, 0, 0.3, 2, 0}, 2},
        {{"records", 8, false, 0.02, 0, 0, 0, 0, 0, 0}, 1.3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int n = n_told_apart(&all[i].noise, all[i].ratio, true, all[i].noise.what);

        print_message("%s: %.1f %% are found\n", all[i].noise.what, 100.0 * n / n_trials);
        if (n < 0.95 * n_trials)
            fail_msg("%s: %d of %d differences are found", all[i].noise.what, n,
                     n_trials);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(detectable_is_the_difference_and_half_the_width),
        cmocka_unit_test(verdicts_round_what_can_be_seen),
        cmocka_unit_test(halves_of_the_restarts),
        cmocka_unit_test(repeats_stay_with_their_restart),
        cmocka_unit_test(what_has_no_aa),
        cmocka_unit_test(equal_settings_are_not_told_apart),
        cmocka_unit_test(real_differences_are_found),
    };

    if (argc > 1)
        n_trials = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
