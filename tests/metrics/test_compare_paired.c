/* Requests in turn of two systems: by hand, and under the recorded noise of a virtual machine, how
 * often a planted difference is found, and one that is not there. `test_compare_paired 2000` makes
 * as many trials of each kind. */
#include "tests/metrics/noise.h"
#include "tests/metrics/rows.h"

#include <stdlib.h>

#include "base/stats.h"

static int n_trials = 150;

/* A restart of both, whose requests took these times. */
enum { ROWS_MAX = 400 };
struct arm {
    int64_t token_ns[ROWS_MAX][2];
    struct metrics_row rows[ROWS_MAX];
    struct compare_run run;
};

/* One after the other; half of the time to the first token. */
static void add_row(struct arm *a, double seconds)
{
    size_t i = a->run.n_rows++;
    int64_t from = i ? a->rows[i - 1].done_ns : 0, took = (int64_t)(seconds * 1e9);

    assert_true(i < ROWS_MAX);
    a->token_ns[i][0] = from + took / 2;
    a->token_ns[i][1] = from + took;
    a->rows[i] = row_at(from, from, a->token_ns[i], 2);
    a->run.rows = a->rows;
}

static double mean_s(const struct arm *a)
{
    return (double)a->rows[a->run.n_rows - 1].done_ns / 1e9 / (double)a->run.n_rows;
}

static struct compare_result compare_arms(struct arm *a, struct arm *b,
                                          const char *metric)
{
    const struct compare_opts o = {
        .metric = metric, .in_turn = true, .paired = true, .seed = 1};
    struct compare_result r;

    a->run.value = mean_s(a);
    b->run.value = mean_s(b);
    assert_ok(compare_metric(&r, &(struct compare_side){&a->run, 1},
                             &(struct compare_side){&b->run, 1}, &o));
    return r;
}

/* --- by hand */

/* The second turn takes 1.5 times as long, a wave hits four requests, B takes 1.1 times as long. */
static void the_ratio_is_that_of_pairs(void **state)
{
    static struct arm a, b;
    struct compare_result r;

    (void)state;
    for (int i = 0; i < 40; i++) {
        double s = 0.1 * (1 + i % 7) * (i >= 12 && i < 16 ? 3 : 1);

        add_row(&a, s * (i % 2 ? 1.5 : 1));
        add_row(&b, s * 1.1 * (i % 2 ? 1 : 1.5) * (i == 14 ? 2 : 1));
    }
    r = compare_arms(&a, &b, "mean_e2e_ms");
    assert_near(r.ratio, 1.1, 1e-6);
    assert_int_equal(r.n_pairs, 20);
    assert_true(isnan(r.between_runs) && r.in_turn);
    assert_near(r.lo, 1.1, 1e-6); /* one pair of twenty is another */
    assert_int_equal(r.verdict, COMPARE_WORSE);
    assert_near(compare_arms(&a, &b, "mean_ttft_ms").ratio, 1.1, 1e-6);
    assert_near(compare_arms(&a, &b, "decode_tok_s").ratio, 1 / 1.1, 1e-6);
}

/* What no request has alone is drawn as before. */
static void tails_and_totals_are_not_of_a_request(void **state)
{
    static const char *const others[] = {"p90_e2e_ms", "max_ttft_ms", "error_frac",
                                         "request_throughput_rps", "n_completed"};
    static struct arm a, b;

    (void)state;
    for (int i = 0; i < 40; i++) {
        add_row(&a, 0.1 + 0.01 * (i % 7));
        add_row(&b, 0.2 + 0.01 * (i % 5));
    }
    for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
        assert_int_equal(compare_arms(&a, &b, others[k]).n_pairs, 0);
    assert_true(compare_arms(&a, &b, "p90_e2e_ms").block > 0);
}

/* Requests that failed or were for warm-up take their pair with them. */
static void pairs_that_do_not_count(void **state)
{
    static struct arm a, b;
    struct compare_result r;

    (void)state;
    for (int i = 0; i < 41; i++) {
        add_row(&a, 0.1);
        add_row(&b, i < 4 || i == 7 ? 10 : 0.2);
    }
    for (int i = 0; i < 3; i++)
        a.rows[i].warmup = b.rows[i].warmup = true;
    b.rows[7].status = METRICS_TIMEOUT;
    r = compare_arms(&a, &b, "p50_e2e_ms");
    assert_int_equal(r.n_pairs, 17); /* not 0 1, 2 3, 6 7, and the last has no partner */
    assert_near(r.ratio, 2, 1e-6);
}

static void each_restart_has_its_median(void **state)
{
    static const double ratios[] = {1.02, 1.05, 1.03};
    static struct arm arms[2][3];
    struct compare_run runs[2][3];
    const struct compare_opts o = {.metric = "mean_e2e_ms", .paired = true, .seed = 1};
    struct compare_result r;
    double logs[3];

    (void)state;
    for (int k = 0; k < 3; k++) {
        logs[k] = log(ratios[k]);
        for (int i = 0; i < 30; i++) {
            add_row(&arms[0][k], 0.1 * (1 + i % 3));
            add_row(&arms[1][k], 0.1 * (1 + i % 3) * ratios[k]);
        }
        for (int s = 0; s < 2; s++) {
            runs[s][k] = arms[s][k].run;
            runs[s][k].restart = k;
            runs[s][k].value = mean_s(&arms[s][k]);
        }
    }
    assert_ok(compare_metric(&r, &(struct compare_side){runs[0], 3},
                             &(struct compare_side){runs[1], 3}, &o));
    assert_near(log(r.ratio), stats_mean(logs, 3), 1e-6);
    assert_near(r.between_runs, 4.303 * stats_std(logs, 3) / sqrt(3), 1e-5);
    assert_true(log(r.hi / r.lo) >= 2 * r.between_runs - 1e-9);
}

/* --- under the noise of a machine */

/* When how much of the work of the recording was done, both in seconds; work is time at the speed
 * that 5 % of its tokens exceed. */
struct noise_of_host {
    double *time, *work;
    size_t n;
};

static void read_host(struct noise_of_host *h)
{
    size_t bytes, n = 0;
    char *text = test_read("tests/metrics/host_noise.txt", &bytes), *at = text, *end;
    double *unit = mem_new(MEM_OTHER, bytes, sizeof(*unit)), fast;

    while (*at == '#')
        at = strchr(at, '\n') + 1;
    for (double v; (v = strtod(at, &end)) > 0; at = end)
        unit[n++] = v / 1e4;
    assert_true(n > 10000 && strspn(at, "\n") == strlen(at));
    fast = stats_percentile(unit, n, 0.05);
    h->n = n;
    h->time = mem_new(MEM_OTHER, n + 1, sizeof(double));
    h->work = mem_new(MEM_OTHER, n + 1, sizeof(double));
    for (size_t i = 0; i < n; i++) {
        h->time[i + 1] = h->time[i] + unit[i];
        h->work[i + 1] = h->work[i] + fast;
    }
    mem_free(unit);
    mem_free(text);
}

/* The value of y at x, where both grow from 0 and begin again behind their ends. */
static double at(const double *x, const double *y, size_t n, double v)
{
    double turns = floor(v / x[n]);
    size_t lo = 0, hi = n;

    v -= turns * x[n];
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;

        *(x[mid] <= v ? &lo : &hi) = mid;
    }
    return turns * y[n] + y[lo] + (y[hi] - y[lo]) * (v - x[lo]) / (x[hi] - x[lo]);
}

/* A machine with a clock of its own. */
struct host {
    const struct noise_of_host *noise;
    double now_s;
};

static double run_work(struct host *m, double work_s)
{
    const struct noise_of_host *h = m->noise;
    double before = m->now_s;

    m->now_s = at(h->work, h->time, h->n, at(h->time, h->work, h->n, before) + work_s);
    return m->now_s - before;
}

#define MEAN_WORK_S 0.3
#define GAP_S       0.0005
/* Between two systems that are not loaded at once: one ends, the other begins. */
#define RESTART_S 20

static double draw_work(struct rng *rng)
{
    return MEAN_WORK_S * exp(0.5 * rng_normal(rng) - 0.125);
}

/* -1: B is faster, 0: not known, 1: slower. */
static int verdict_of(double lo, double hi)
{
    return (lo > 1) - (hi < 1);
}

static int paired_trial(const struct noise_of_host *h, double difference, int n_requests,
                        struct rng *rng)
{
    static struct arm arms[2];
    struct host m = {h, rng_f64(rng) * h->time[h->n]};
    struct compare_result r;

    arms[0].run.n_rows = arms[1].run.n_rows = 0;
    for (int i = 0; i < n_requests; i++) {
        double work = draw_work(rng);

        for (int turn = 0; turn < 2; turn++) {
            int of = compare_turn(i, turn, 2);

            add_row(&arms[of], run_work(&m, work * (of ? 1 + difference : 1)));
            m.now_s += GAP_S;
        }
    }
    r = compare_arms(&arms[0], &arms[1], "mean_e2e_ms");
    return verdict_of(r.lo, r.hi);
}

/* Repeats of a block of requests of A and of the same ones of B, in turn. */
static int block_trial(const struct noise_of_host *h, double difference, int n_repeats,
                       int n_requests, struct rng *rng)
{
    double logs[2][MAX_ROUNDS * 10];
    struct compare_run runs[2][MAX_ROUNDS * 10];
    struct host m = {h, rng_f64(rng) * h->time[h->n]};
    const struct compare_opts o = {.metric = "mean_e2e_ms", .in_turn = true};
    struct compare_result r;

    for (int k = 0; k < n_repeats; k++) {
        struct rng same = *rng;

        for (int turn = 0; turn < 2; turn++) {
            int of = compare_turn(k, turn, 2);

            *rng = same;
            logs[of][k] = 0;
            for (int i = 0; i < n_requests; i++)
                logs[of][k] += run_work(&m, draw_work(rng) * (of ? 1 + difference : 1));
            runs[of][k] = (struct compare_run){.restart = k, .value = logs[of][k]};
            m.now_s += RESTART_S;
        }
    }
    assert_ok(compare_metric(&r, &(struct compare_side){runs[0], (size_t)n_repeats},
                             &(struct compare_side){runs[1], (size_t)n_repeats}, &o));
    return verdict_of(r.lo, r.hi);
}

/* Shares of trials that found B slower, and faster. */
struct shares {
    double slower, faster;
};

static struct shares paired(const struct noise_of_host *h, double difference, int n)
{
    struct shares s = {0};
    struct rng rng;

    rng_init(&rng, test_seed(), "paired");
    for (int t = 0; t < n_trials; t++) {
        int v = paired_trial(h, difference, n, &rng);

        s.slower += (v > 0) / (double)n_trials;
        s.faster += (v < 0) / (double)n_trials;
    }
    print_message("%3d requests in turn, %g %%: slower in %.1f %%, faster in %.1f %%\n",
                  n, 100 * difference, 100 * s.slower, 100 * s.faster);
    return s;
}

static struct shares blocks(const struct noise_of_host *h, double difference,
                            int n_repeats, int n)
{
    struct shares s = {0};
    struct rng rng;

    rng_init(&rng, test_seed(), "blocks");
    for (int t = 0; t < n_trials; t++) {
        int v = block_trial(h, difference, n_repeats, n, &rng);

        s.slower += (v > 0) / (double)n_trials;
        s.faster += (v < 0) / (double)n_trials;
    }
    print_message("%3d repeats of %d requests, %g %%: slower in %.1f %%, faster in %.1f "
                  "%%\n",
                  n_repeats, n, 100 * difference, 100 * s.slower, 100 * s.faster);
    return s;
}

/* Four standard errors of a share of that size. */
static double margin(double share)
{
    return 4 * sqrt(share * (1 - share) / n_trials);
}

static void planted_differences_are_found(void **state)
{
    struct noise_of_host h;
    struct shares s;

    (void)state;
    read_host(&h);
    s = paired(&h, 0, 200);
    assert_true(s.slower + s.faster <= 0.05 + margin(0.05));
    s = paired(&h, 0.01, 200);
    assert_true(s.faster <= 0.025 + margin(0.025));
    s = paired(&h, 0.02, 200);
    assert_true(s.slower >= 0.8 - margin(0.8) && s.faster <= 0.01 + margin(0.01));
    s = paired(&h, 0.05, 200);
    assert_true(s.slower >= 0.99 - margin(0.99));
    mem_free(h.time);
    mem_free(h.work);
}

/* The same 200 requests, and many more of them, where systems are measured in blocks. */
static void blocks_of_requests_do_not_find_them(void **state)
{
    struct noise_of_host h;
    struct shares s;

    (void)state;
    read_host(&h);
    for (int n = 6; n <= 192; n *= 2) {
        s = blocks(&h, 0.02, n, 34);
        assert_true(s.slower < 0.5);
    }
    mem_free(h.time);
    mem_free(h.work);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ratio_is_that_of_pairs),
        cmocka_unit_test(tails_and_totals_are_not_of_a_request),
        cmocka_unit_test(pairs_that_do_not_count),
        cmocka_unit_test(each_restart_has_its_median),
        cmocka_unit_test(planted_differences_are_found),
        cmocka_unit_test(blocks_of_requests_do_not_find_them),
    };

    if (argc > 1)
        n_trials = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
