/* The comparison of two sides by hand: which runs are units, which requests are drawn together and
 * with what weight, and the verdicts on both sides of the margin. */
#include "tests/metrics/rows.h"

#include "base/stats_interval.h"
#include "experiments/metrics/compare.h"

#define N_ROWS 15

/* ---- runs that are a value each */

struct side {
    struct compare_run runs[8];
    struct compare_side side;
};

/* `restarts`: of each run a digit. `logs`: the logarithms of the values. */
static const struct compare_side *side_of(struct side *s, const char *restarts,
                                          const double *logs)
{
    *s = (struct side){.side = {.runs = s->runs, .n = strlen(restarts)}};
    for (size_t i = 0; i < s->side.n; i++)
        s->runs[i] =
            (struct compare_run){.restart = restarts[i] - '0', .value = exp(logs[i])};
    return &s->side;
}

static struct compare_result compare(const char *restarts_a, const double *a,
                                     const char *restarts_b, const double *b,
                                     struct compare_opts o)
{
    struct compare_result r;
    struct side x, y;

    o.metric = "step_s";
    assert_ok(
        compare_metric(&r, side_of(&x, restarts_a, a), side_of(&y, restarts_b, b), &o));
    return r;
}

#define LOGS(...) ((const double[]){__VA_ARGS__})

TEST(units_are_restarts)
{
    /* Units 0.1, 0.3 and 1, 1.2: each deviates by 0.1 from its mean, so the pooled deviation is
     * sqrt(0.02), its error times sqrt(1/2 + 1/2), 2 degrees of freedom. */
    struct compare_result r =
        compare("001", LOGS(0, 0.2, 0.3), "01", LOGS(1, 1.2), (struct compare_opts){0});

    assert_true(r.n_units[0] == 2 && r.n_units[1] == 2 && !r.units_repeats && !r.in_turn);
    assert_near(r.a, exp(0.2), 1e-12);
    assert_near(r.b, exp(1.1), 1e-12);
    assert_near(r.ratio, exp(0.9), 1e-12);
    assert_near(r.between_runs, 4.303 * sqrt(0.02), 1e-4);
    assert_near(r.lo, exp(0.9 - r.between_runs), 1e-12);
    assert_near(r.hi, exp(0.9 + r.between_runs), 1e-12);
    /* of three repeats their mean */
    r = compare("0001", LOGS(0, 0.3, 0.6, 0.9), "01", LOGS(1, 1),
                (struct compare_opts){0});
    assert_near(r.a, exp(0.6), 1e-12);
    /* one restart of a side is one unit, unless both sides have but one */
    r = compare("00", LOGS(0, 0.2), "01", LOGS(1, 1), (struct compare_opts){0});
    assert_true(r.n_units[0] == 1 && r.n_units[1] == 2 && !r.units_repeats);
    r = compare("00", LOGS(0, 0.2), "000", LOGS(1, 1, 1), (struct compare_opts){0});
    assert_true(r.n_units[0] == 2 && r.n_units[1] == 3 && r.units_repeats);
    /* pairs need as many of each */
    r = compare("01", LOGS(0, 1), "01", LOGS(1, 2),
                (struct compare_opts){.in_turn = true});
    assert_true(r.in_turn && r.between_runs < 1e-12);
    r = compare("01", LOGS(0, 1), "012", LOGS(1, 2, 3),
                (struct compare_opts){.in_turn = true});
    assert_false(r.in_turn);
    r = compare("00", LOGS(0, 1), "00", LOGS(1, 2),
                (struct compare_opts){.in_turn = true});
    assert_false(r.in_turn);
}

/* Without any spread the interval is the ratio: a little within the margin, and a little beyond. */
TEST(verdicts_round_the_margin)
{
    static const struct {
        double log_ratio;
        enum compare_verdict lower, higher;
        bool maybe_worse[2];
    } all[] = {
        {0.0953, COMPARE_SAME, COMPARE_SAME, {false, false}}, /* log 1.1 is 0.09531 */
        {0.0954, COMPARE_WORSE, COMPARE_BETTER, {true, false}},
        {-0.0953, COMPARE_SAME, COMPARE_SAME, {false, false}},
        {-0.0954, COMPARE_BETTER, COMPARE_WORSE, {false, true}},
        {0, COMPARE_SAME, COMPARE_SAME, {false, false}},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (int higher = 0; higher < 2; higher++) {
            struct compare_result r = compare(
                "01", LOGS(0, 0), "01", LOGS(all[i].log_ratio, all[i].log_ratio),
                (struct compare_opts){.higher_is_better = higher, .margin_frac = 0.1});

            assert_int_equal(r.verdict, higher ? all[i].higher : all[i].lower);
            assert_int_equal(r.maybe_worse, all[i].maybe_worse[higher]);
            /* without a margin only what is equal is the same */
            r = compare("01", LOGS(0, 0), "01", LOGS(all[i].log_ratio, all[i].log_ratio),
                        (struct compare_opts){.higher_is_better = higher});
            assert_true((r.verdict == COMPARE_SAME) == (all[i].log_ratio == 0));
        }
}

/* Restarts that differ by 0.02 make it reach 0.06 to each side, by 0.1 it is 0.3. */
TEST(verdicts_of_wide_intervals)
{
    static const struct {
        double middle, spread, margin;
        enum compare_verdict want;
        bool maybe_worse;
    } all[] = {
        {0.1, 0.1, 0.05, COMPARE_UNKNOWN, true},
        {-0.2, 0.02, 0.05, COMPARE_BETTER, false},
        {-0.03, 0.02, 0.05, COMPARE_UNKNOWN, false},
        {0.03, 0.02, 0.05, COMPARE_UNKNOWN, true},
        {0.2, 0.02, 0.05, COMPARE_WORSE, true},
        {0.2, 0.02, 0.5, COMPARE_SAME, false},
        {0.1, 0.02, 0.05, COMPARE_UNKNOWN, true},
        {-0.09, 0.02, 0.05, COMPARE_BETTER, false},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        double d = all[i].spread / 2, x = all[i].middle;
        struct compare_result r =
            compare("01", LOGS(-d, d), "01", LOGS(x - d, x + d),
                    (struct compare_opts){.margin_frac = all[i].margin});

        if (r.verdict != all[i].want || r.maybe_worse != all[i].maybe_worse)
            fail_msg("row %zu: %s, from %g to %g", i, compare_verdict_name(r.verdict),
                     log(r.lo), log(r.hi));
    }
}

TEST(words_and_no_ratio)
{
    static const char *const words[] = {"same", "better", "worse", "cannot say"};
    struct compare_run zero[2] = {{.value = 0}, {.value = 0}}, one = {.value = 1};
    const struct compare_side zeros = {zero, 2}, ones = {&one, 1}, none = {NULL, 0};
    const struct compare_opts o = {.metric = "step_s", .margin_frac = 0.05};
    struct compare_result r;

    for (int i = 0; i < 4; i++)
        assert_string_equal(compare_verdict_name((enum compare_verdict)i), words[i]);
    assert_ok(compare_metric(&r, &zeros, &zeros, &o));
    assert_true(r.a == 0 && r.b == 0 && r.ratio == 1 && r.lo == 1 && r.hi == 1 &&
                !r.maybe_worse && r.verdict == COMPARE_SAME);
    assert_ok(compare_metric(&r, &ones, &zeros, &o));
    assert_string_equal(r.why,
                        "B has a run with the value 0, of which there is no ratio");
    assert_true(isnan(r.ratio) && r.maybe_worse);
    zero[1].value = 1; /* one of them is 0, and not the last */
    assert_ok(compare_metric(&r, &zeros, &zeros, &o));
    assert_string_equal(r.why,
                        "A has a run with the value 0, of which there is no ratio");
    assert_ok(compare_metric(&r, &ones, &none, &o));
    assert_string_equal(r.why, "B has no run");
    assert_ok(compare_metric(&r, &none, &none, &o));
    assert_string_equal(r.why, "A has no run");
}

/* ---- runs with requests */

struct served {
    struct metrics_row rows[5][N_ROWS];
    int64_t t[5][N_ROWS];
    struct compare_run runs[5];
};

/* The same requests in each run, and each takes `scale` times as long as in the first. */
static void serve(struct served *s, int run, double scale, int restart, size_t n)
{
    int64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        s->t[run][i] = at + (int64_t)(scale * (double)(1 + i * 7 % 5) * (double)MS);
        s->rows[run][i] = row_at(at, at, &s->t[run][i], 1);
        s->rows[run][i].n_prompt_tok = (int64_t)i;
        at = s->t[run][i];
    }
    s->runs[run] =
        (struct compare_run){.restart = restart, .rows = s->rows[run], .n_rows = n};
    s->runs[run].value = 3e-3 * scale;
}

/* Of the same requests the same are drawn on both sides, so that a constant factor leaves no
 * spread, however many restarts and repeats a side has. */
TEST(the_same_requests_are_drawn_together)
{
    const struct compare_opts o = {
        .metric = "mean_ttft_ms", .margin_frac = 0.05, .seed = 7};
    static struct served s;
    struct compare_result r;

    serve(&s, 0, 1, 0, N_ROWS);
    serve(&s, 1, 1.5, 1, N_ROWS);
    serve(&s, 2, 2, 1, N_ROWS);
    serve(&s, 3, 4, 0, N_ROWS);
    serve(&s, 4, 3, 1, N_ROWS);
    assert_ok(compare_metric(&r, &(struct compare_side){s.runs, 3},
                             &(struct compare_side){s.runs + 3, 2}, &o));
    assert_true(r.same_requests && r.n_requests == N_ROWS);
    assert_int_equal(r.block, stats_block_length(N_ROWS));
    assert_true(r.between_requests >= 0 && r.between_requests < 1e-6);
    for (int run = 0; run < 5;
         run++) /* in one run of either side, at either end, in or out */
        for (int what = 0; what < 4; what++) {
            struct metrics_row *row = &s.rows[run][what % 2 ? N_ROWS - 1 : 0];
            int64_t *n = what < 2 ? &row->n_prompt_tok : &row->n_output_tok;

            *n += 100;
            assert_ok(compare_metric(&r, &(struct compare_side){s.runs, 3},
                                     &(struct compare_side){s.runs + 3, 2}, &o));
            assert_false(r.same_requests);
            assert_true(r.between_requests > 0.01);
            *n -= 100;
        }
}

/* With one restart of one repeat it is the other source alone; the fewest requests count. */
TEST(fewer_requests_on_one_side)
{
    const struct compare_opts o = {
        .metric = "mean_ttft_ms", .margin_frac = 0.05, .seed = 7};
    static struct served s;
    struct compare_result r;

    for (int swap = 0; swap < 2; swap++) {
        serve(&s, 0, 1, 0, swap ? 10 : N_ROWS);
        serve(&s, 1, 1, 0, swap ? N_ROWS : 10);
        assert_ok(compare_metric(&r, &(struct compare_side){s.runs, 1},
                                 &(struct compare_side){s.runs + 1, 1}, &o));
        assert_true(!r.same_requests && r.n_requests == 10 && isnan(r.between_runs));
        assert_int_equal(r.block, stats_block_length(10));
        assert_true(r.between_requests > 0.01 && r.between_requests < 1);
        assert_near(r.hi / r.lo, exp(2 * r.between_requests), 1e-9);
        s.runs[1].rows = NULL; /* of one side there are no requests */
        assert_ok(compare_metric(&r, &(struct compare_side){s.runs, 1},
                                 &(struct compare_side){s.runs + 1, 1}, &o));
        assert_true(isnan(r.between_requests) && isnan(r.lo));
        assert_non_null(strstr(r.why, "one run on each side"));
    }
}
