/* The statistics of comparisons, on runs that are made up: how often the interval holds the
 * true ratio, how often two equal settings are called the same, and what is found. No clock:
 * requests follow one another by arithmetic. `test_compare 2000` makes 2000 trials of each kind
 * and prints how often the interval held the true ratio. */
#include "tests/metrics/rows.h"

#include <math.h>

#include "base/stats_interval.h"
#include "experiments/metrics/compare.h"
#include "experiments/metrics/bootstrap.h"

#define N_TOK 4

static int n_trials = 120;

/* How a side behaves. Deviations are those of the logarithm of a time. */
struct scene {
    int n_restarts, n_repeats, n_requests;
    double request_dev, request_rho; /* of a request; of it, what the next one inherits */
    double restart_dev;
    double drift_dev;  /* of the machine, from each restart to the next: a random walk */
    double length_dev; /* of requests, the same for both sides */
    bool in_turn;
};

struct made {
    struct compare_run runs[64];
    struct compare_side side;
    struct metrics_row *rows;
    int64_t *tokens;
};

static void made_free(struct made *m)
{
    mem_free(m->rows);
    mem_free(m->tokens);
}

/* One user at a time, as fast as the system answers. */
static void make_run(struct metrics_row *rows, int64_t *tokens, const struct scene *s,
                     const double *length, double speed, struct rng *rng)
{
    double noise = rng_normal(rng);
    int64_t at = 0;

    for (int i = 0; i < s->n_requests; i++) {
        double ttft_ms = 20 * speed * length[i] * exp(s->request_dev * noise);
        int64_t *t = tokens + i * N_TOK;

        for (int k = 0; k < N_TOK; k++)
            t[k] = at + (int64_t)(ttft_ms * (1 + 0.1 * k) * 1e6);
        rows[i] = row_at(at, at, t, N_TOK);
        rows[i].n_prompt_tok = (int64_t)(100 * length[i]);
        at = rows[i].done_ns;
        noise = s->request_rho * noise +
                sqrt(1 - s->request_rho * s->request_rho) * rng_normal(rng);
    }
}

static double value_of(const struct compare_run *r, const char *metric_name)
{
    const struct metrics_input in = {.rows = r->rows,
                                     .n_rows = r->n_rows,
                                     .slo = r->slo,
                                     .read_gbps = NAN,
                                     .peak_gflops = NAN,
                                     .read_why = "",
                                     .peak_why = ""};
    double v;

    assert_ok(metrics_one(&v, &in, metric_name));
    return v;
}

/* `drift`: [n_restarts] what the machine was worth at the time of each restart. */
static void make_side(struct made *m, const struct scene *s, double speed,
                      const double *length, const double *drift, const char *metric_name,
                      struct rng *rng)
{
    int n = s->n_restarts * s->n_repeats;
    double of_restart = 1;

    *m = (struct made){.side = {.runs = m->runs, .n = (size_t)n}};
    m->rows = mem_new(MEM_TEST, (size_t)(n * s->n_requests), sizeof(*m->rows));
    m->tokens = mem_new(MEM_TEST, (size_t)(n * s->n_requests * N_TOK), sizeof(int64_t));
    assert_true(m->rows && m->tokens && n <= 64);
    for (int i = 0; i < n; i++) {
        int restart = i / s->n_repeats;
        struct metrics_row *rows = m->rows + i * s->n_requests;

        if (i % s->n_repeats == 0)
            of_restart = exp(s->restart_dev * rng_normal(rng));
        make_run(rows, m->tokens + i * s->n_requests * N_TOK, s, length,
                 speed * of_restart * drift[restart], rng);
        m->runs[i] = (struct compare_run){.restart = restart,
                                          .rows = rows,
                                          .n_rows = (size_t)s->n_requests,
                                          .slo = {.ttft_ms = 25}};
        m->runs[i].value = value_of(&m->runs[i], metric_name);
    }
}

static struct compare_result compare_scene(const struct scene *s, double ratio,
                                           const char *metric_name, double margin,
                                           struct rng *rng)
{
    const struct compare_opts o = {.metric = metric_name,
                                   .higher_is_better = strstr(metric_name, "throughput"),
                                   .in_turn = s->in_turn,
                                   .margin_frac = margin,
                                   .seed = rng_u64(rng)};
    double length[512], drift[16], now = 1;
    struct compare_result r;
    struct made a, b;

    assert_true(s->n_requests <= 512 && s->n_restarts <= 16);
    for (int i = 0; i < s->n_requests; i++)
        length[i] = exp(s->length_dev * rng_normal(rng));
    for (int i = 0; i < s->n_restarts; i++) {
        drift[i] = now;
        now *= exp(s->drift_dev * rng_normal(rng));
    }
    make_side(&a, s, 1, length, drift, metric_name, rng);
    make_side(&b, s, ratio, length, drift, metric_name, rng);
    assert_ok(compare_metric(&r, &a.side, &b.side, &o));
    made_free(&a);
    made_free(&b);
    return r;
}

/* --- how often the interval holds the truth */

struct coverage {
    const char *what;
    struct scene scene;
    const char *metric;
};

/* A share that is 0.95 in truth is below 0.95 - 4 standard errors once in 30,000. Where both
 * sources of spread are there, the wider interval covers more. */
static void intervals_hold_the_true_ratio(void **state)
{
    static const struct coverage all[] = {
        {"requests alone", {1, 1, 90, 0.3, 0, 0, 0, 0, 0}, "mean_ttft_ms"},
        {"requests that depend on the one before",
         {1, 1, 90, 0.3, 0.5, 0, 0, 0, 0},
         "mean_ttft_ms"},
        {"few of them", {1, 1, 30, 0.3, 0.3, 0, 0, 0, 0}, "mean_ttft_ms"},
        {"many of them", {1, 1, 400, 0.3, 0.6, 0, 0, 0, 0}, "mean_ttft_ms"},
        {"of many lengths", {1, 1, 90, 0.1, 0.3, 0, 0, 1, 0}, "mean_ttft_ms"},
        {"a median", {1, 1, 90, 0.3, 0.3, 0, 0, 0, 0}, "p50_ttft_ms"},
        {"a rate", {1, 1, 90, 0.3, 0.3, 0, 0, 0, 0}, "request_throughput_rps"},
        {"three restarts", {3, 1, 30, 0.1, 0, 0.05, 0, 0, 0}, "mean_ttft_ms"},
        {"restarts with repeats", {4, 3, 20, 0.1, 0, 0.05, 0, 0, 0}, "mean_ttft_ms"},
        {"repeats of one", {1, 5, 20, 0.2, 0, 0, 0, 0, 0}, "mean_ttft_ms"},
        {"in turn on a machine that drifts",
         {5, 1, 30, 0.1, 0, 0.02, 0.15, 0, 1},
         "mean_ttft_ms"},
    };
    struct rng rng;

    (void)state;
    rng_init(&rng, test_seed(), "coverage");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const int n = n_trials;
        const bool rate = strncmp(all[i].metric, "request", 7) == 0;
        int n_held = 0;

        for (int k = 0; k < n; k++) {
            double ratio = exp(0.2 * rng_normal(&rng)), truth = rate ? 1 / ratio : ratio;
            struct compare_result r =
                compare_scene(&all[i].scene, ratio, all[i].metric, 0.05, &rng);

            n_held += r.lo <= truth && truth <= r.hi;
        }
        print_message("%s: %.1f %%\n", all[i].what, 100.0 * n_held / n);
        if (n_held < (0.95 - 4 * sqrt(0.95 * 0.05 / n)) * n)
            fail_msg("%s: %d of %d intervals hold the true ratio", all[i].what, n_held,
                     n);
    }
}

/* --- what is decided */

static int count(const struct scene *s, double ratio, enum compare_verdict v, int n,
                 struct rng *rng)
{
    int found = 0;

    for (int k = 0; k < n; k++)
        found += compare_scene(s, ratio, "mean_ttft_ms", 0.05, rng).verdict == v;
    return found;
}

/* Five rounds on a machine that drifts by 10 % from round to round, with 1 % between
 * restarts. */
static const struct scene five_rounds = {5, 1, 40, 0.03, 0.3, 0.01, 0.1, 0.5, true};

static void equal_settings_are_the_same(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, test_seed(), "same");
    assert_true(count(&five_rounds, 1, COMPARE_SAME, 200, &rng) >= 180);
    assert_int_equal(count(&five_rounds, 1, COMPARE_WORSE, 200, &rng), 0);
}

static void ten_per_cent_are_found(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, test_seed(), "slower");
    assert_true(count(&five_rounds, 1.1, COMPARE_WORSE, 100, &rng) >= 85);
    assert_true(count(&five_rounds, 1 / 1.1, COMPARE_BETTER, 100, &rng) >= 85);
}

/* Not in turn the same drift hides them, and it is said so. */
static void drift_is_not_taken_for_a_difference(void **state)
{
    struct scene s = five_rounds;
    struct rng rng;

    (void)state;
    s.in_turn = false;
    rng_init(&rng, test_seed(), "drift");
    assert_true(count(&s, 1, COMPARE_WORSE, 100, &rng) <= 2);
    assert_true(count(&s, 1.1, COMPARE_UNKNOWN, 100, &rng) >= 80);
}

/* --- by hand */

static struct compare_result compare_values(const double *a, int n_a, const double *b,
                                            int n_b, bool restarts,
                                            const struct compare_opts *o)
{
    struct compare_run x[8] = {0}, y[8] = {0};
    struct compare_result r;

    for (int i = 0; i < n_a; i++)
        x[i] = (struct compare_run){.restart = restarts ? i : 0, .value = a[i]};
    for (int i = 0; i < n_b; i++)
        y[i] = (struct compare_run){.restart = restarts ? i : 0, .value = b[i]};
    assert_ok(compare_metric(&r, &(struct compare_side){x, (size_t)n_a},
                             &(struct compare_side){y, (size_t)n_b}, o));
    return r;
}

#define VALUES(...)                                                                      \
    (const double[]){__VA_ARGS__}, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))

static const struct compare_opts lower = {.metric = "step_s", .margin_frac = 0.05};
static const struct compare_opts higher = {
    .metric = "tok_s", .higher_is_better = true, .margin_frac = 0.05};
static const struct compare_opts turns = {
    .metric = "step_s", .margin_frac = 0.05, .in_turn = true};

static void intervals_by_hand(void **state)
{
    /* Logarithms 0, 0.02 and 0.1, 0.12: difference 0.1, pooled deviation sqrt(2e-4), its
     * error times sqrt(1/2 + 1/2), 2 degrees of freedom. */
    double half = 4.303 * sqrt(2e-4);
    struct compare_result r =
        compare_values(VALUES(1, exp(0.02)), VALUES(exp(0.1), exp(0.12)), true, &lower);

    (void)state;
    assert_near(r.ratio, exp(0.1), 1e-12);
    assert_near(log(r.hi / r.lo), 2 * half, 1e-12);
    assert_int_equal(r.n_units[0], 2);
    assert_false(r.units_repeats);
    assert_true(isnan(r.between_requests));
    assert_int_equal(r.verdict, COMPARE_UNKNOWN); /* from 0.04 on: within the margin */
    assert_true(r.maybe_worse);
    /* In pairs: differences 0.1 and 0.1. */
    r = compare_values(VALUES(1, exp(0.02)), VALUES(exp(0.1), exp(0.12)), true, &turns);
    assert_true(r.in_turn);
    assert_near(r.lo, exp(0.1), 1e-9);
    assert_int_equal(r.verdict, COMPARE_WORSE);
    /* Repeats of one restart are units, never pairs. */
    r = compare_values(VALUES(1, exp(0.02)), VALUES(exp(0.1), exp(0.12)), false, &turns);
    assert_true(r.units_repeats);
    assert_false(r.in_turn);
    assert_near(log(r.hi / r.lo), 2 * half, 1e-12);
}

static void verdicts_by_hand(void **state)
{
    static const double one[] = {1, 1};

    (void)state;
    assert_int_equal(compare_values(one, 2, VALUES(1.02, 1.02), true, &lower).verdict,
                     COMPARE_SAME);
    assert_int_equal(compare_values(one, 2, VALUES(1.06, 1.06), true, &lower).verdict,
                     COMPARE_WORSE);
    assert_int_equal(compare_values(one, 2, VALUES(0.9, 0.9), true, &lower).verdict,
                     COMPARE_BETTER);
    assert_int_equal(compare_values(one, 2, VALUES(0.9, 0.9), true, &higher).verdict,
                     COMPARE_WORSE);
    assert_int_equal(compare_values(one, 2, VALUES(1.1, 1.1), true, &higher).verdict,
                     COMPARE_BETTER);
    /* Surely better, but perhaps by less than the margin. */
    assert_int_equal(compare_values(one, 2, VALUES(0.93, 0.935), true, &turns).verdict,
                     COMPARE_BETTER);
}

static void what_has_no_ratio(void **state)
{
    struct compare_result r = compare_values(VALUES(0, 0), VALUES(0), true, &lower);

    (void)state;
    assert_int_equal(r.verdict, COMPARE_SAME);
    assert_near(r.hi, 1, 0);
    r = compare_values(VALUES(0, 1), VALUES(1, 1), true, &lower);
    assert_int_equal(r.verdict, COMPARE_UNKNOWN);
    assert_non_null(strstr(r.why, "A has a run with the value 0"));
    r = compare_values(VALUES(1, 1), VALUES(1, NAN), true, &lower);
    assert_non_null(strstr(r.why, "B has a run without a value"));
    r = compare_values(VALUES(1), VALUES(2), true, &lower);
    assert_int_equal(r.verdict, COMPARE_UNKNOWN);
    assert_near(r.ratio, 2, 1e-12);
    assert_non_null(strstr(r.why, "one run on each side"));
    r = compare_values(VALUES(1), VALUES(2), true, &higher);
    assert_true(r.maybe_worse);
    r = compare_values(NULL, 0, VALUES(2), true, &lower);
    assert_non_null(strstr(r.why, "A has no run"));
}

/* --- drawn runs */

/* Blocks in their own order are the run itself; every metric stays what it was. */
static void a_run_of_its_own_blocks(void **state)
{
    static const char *const same[] = {
        "mean_ttft_ms", "p90_itl_ms",         "mean_tpot_ms",           "max_e2e_ms",
        "decode_tok_s", "prefill_tok_s",      "request_throughput_rps", "duration_s",
        "little_l",     "slo_attainment_frac"};
    const struct scene s = {1, 1, 20, 0.3, 0.3, 0, 0, 0.5, false};
    double length[20], drift = 1, v;
    struct compare_resampler r;
    struct rng rng;
    struct made m;

    (void)state;
    rng_init(&rng, test_seed(), "blocks");
    for (int i = 0; i < 20; i++)
        length[i] = exp(rng_normal(&rng));
    make_side(&m, &s, 1, length, &drift, "mean_ttft_ms", &rng);
    m.rows[0].warmup = m.rows[1].warmup = true;
    compare_resampler_open(&r, &m.runs[0]);
    assert_int_equal(r.n, 18);
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        assert_ok(compare_resample(&r, same[i], 6, (const size_t[]){0, 6, 12}, &v));
        assert_near(v, value_of(&m.runs[0], same[i]), 1e-9 * v);
    }
    /* The last block twice: 6 requests in place of 6 others, behind one another in time. */
    assert_ok(compare_resample(&r, "n_completed", 6, (const size_t[]){12, 6, 12}, &v));
    assert_near(v, 18, 0);
    for (size_t i = 1; i < r.n; i++)
        assert_true(r.drawn[i].intended_ns >= r.drawn[i - 1].done_ns);
    assert_int_equal(r.drawn[0].n_prompt_tok, r.drawn[12].n_prompt_tok);
    compare_resampler_close(&r);
    made_free(&m);
}

/* Requests that were never sent, failed or got nothing have times that never came. */
static void failed_requests_are_drawn_too(void **state)
{
    const struct scene s = {1, 1, 30, 0.1, 0, 0, 0, 0, false};
    const struct compare_opts o = {.metric = "slo_attainment_frac",
                                   .higher_is_better = true,
                                   .margin_frac = 0.05,
                                   .seed = 1};
    double length[30], drift = 1;
    struct compare_result r;
    struct rng rng;
    struct made a, b;

    (void)state;
    rng_init(&rng, test_seed(), "failed");
    for (int i = 0; i < 30; i++)
        length[i] = 1;
    make_side(&a, &s, 1, length, &drift, o.metric, &rng);
    make_side(&b, &s, 1, length, &drift, o.metric, &rng);
    for (int i = 3; i < 30; i += 4) {
        struct metrics_row *row = &b.rows[i];

        row->status = i % 3 ? METRICS_REJECTED : METRICS_FAILED;
        row->n_tok = 0;
        row->dispatch_ns = row->first_token_ns = METRICS_NEVER;
        row->done_ns = row->intended_ns;
    }
    b.runs[0].value = value_of(&b.runs[0], o.metric);
    assert_ok(compare_metric(&r, &a.side, &b.side, &o));
    assert_true(r.ratio < 0.95);
    assert_true(r.same_requests);
    assert_true(r.between_requests > 0);
    assert_int_equal(r.n_requests, 30);
    made_free(&a);
    made_free(&b);
}

static void blocks_grow_with_the_run(void **state)
{
    (void)state;
    assert_int_equal(stats_block_length(9), 0);
    assert_int_equal(stats_block_length(10), 2);
    assert_int_equal(stats_block_length(90), 14);
    for (size_t n = 10; n < 5000; n++) {
        assert_true(stats_block_length(n) <= stats_block_length(n + 1));
        assert_true(n / stats_block_length(n) >= 5);
    }
}

/* After 2 n rounds each of n has had each position twice. */
static void turns_favour_none(void **state)
{
    (void)state;
    for (int n = 1; n < 9; n++) {
        int at[9][9] = {{0}};

        for (int64_t round = 0; round < 2 * n; round++) {
            bool seen[9] = {false};

            for (int turn = 0; turn < n; turn++) {
                int i = compare_turn(round, turn, n);

                assert_true(i >= 0 && i < n && !seen[i]);
                seen[i] = true;
                at[i][turn]++;
            }
        }
        for (int i = 0; i < n * n; i++)
            assert_int_equal(at[i / n][i % n], 2);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_hold_the_true_ratio),
        cmocka_unit_test(equal_settings_are_the_same),
        cmocka_unit_test(ten_per_cent_are_found),
        cmocka_unit_test(drift_is_not_taken_for_a_difference),
        cmocka_unit_test(intervals_by_hand),
        cmocka_unit_test(verdicts_by_hand),
        cmocka_unit_test(what_has_no_ratio),
        cmocka_unit_test(a_run_of_its_own_blocks),
        cmocka_unit_test(failed_requests_are_drawn_too),
        cmocka_unit_test(blocks_grow_with_the_run),
        cmocka_unit_test(turns_favour_none),
    };

    if (argc > 1)
        n_trials = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
