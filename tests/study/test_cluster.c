/* Splitwise's designs on the simulated cluster: sizes of a trace stay together, what is measured,
 * slowdowns, machines of Fig. 16, rules, and input that cannot be used. */
#include "experiments/study/support/cluster.h"
#include "tests/study/capture.h"

extern const struct study study_cluster_load, study_cluster_provision;

static struct study_cluster cluster;
static struct study_cluster_result result;
static struct study_cluster_opts opts;

/* Defaults of the rows, without any downloaded file. */
static void defaults(void)
{
    static const struct study_cluster_opts plain = {.machines = (char *)"",
                                                    .model = (char *)"bloom-176b",
                                                    .perf = (char *)"table",
                                                    .perf_path = (char *)"/nowhere.csv",
                                                    .sized_for = 2,
                                                    .token_threshold = 64,
                                                    .duration_s = 60,
                                                    .warmup_s = 10,
                                                    .cooldown_s = 5,
                                                    .seed = 1};

    opts = plain;
    opts.design = 3; /* Splitwise-HH */
}

/* 50 requests, one each half second: prompts of 100, 200 ... have outputs of 2, 4 ... */
static char *own_trace(void)
{
    static char path[256];
    char text[4096] = "arrived_at,num_prefill_tokens,num_decode_tokens\n";

    for (int i = 0; i < 50; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%g,%d,%d\n", 0.5 * i,
                 100 * (1 + i % 5), 2 * (1 + i % 5));
    snprintf(path, sizeof(path), "%.200s", test_path("own.csv"));
    test_write(path, text, strlen(text));
    return path;
}

static void run(double rate, bool stop_early, struct cluster_observer watch)
{
    struct study_cluster_load load = {
        .rate = rate, .stop_early = stop_early, .watch = watch};

    cluster = (struct study_cluster){0};
    assert_ok(study_cluster_open(&cluster, &opts));
    assert_ok(study_cluster_machines(&cluster, &load.n_prompt, &load.n_token));
    assert_ok(study_cluster_run(&result, &cluster, &load));
    study_cluster_close(&cluster);
}

struct seen {
    int64_t n, n_measured, n_apart, last_arrival_ns;
    int64_t n_prompt[6];
};

static void on_done(void *ctx, const struct cluster_done *d)
{
    struct seen *s = ctx;

    s->n++;
    s->n_measured += d->arrival_ns >= 10e9 && d->arrival_ns < 55e9;
    s->n_apart += d->n_prompt != 50 * d->n_output;
    s->n_prompt[d->n_prompt / 100]++;
    if (d->arrival_ns > s->last_arrival_ns)
        s->last_arrival_ns = d->arrival_ns;
}

TEST(prompt_and_output_are_of_one_request)
{
    struct seen s = {0};

    defaults();
    opts.trace_path = own_trace();
    run(10, false, (struct cluster_observer){.ctx = &s, .done = on_done});
    assert_true(s.n > 400 && s.n_apart == 0);
    for (int i = 1; i <= 5; i++)
        assert_true(s.n_prompt[i] > 50);
    assert_int_equal(result.n_measured, s.n_measured);
    assert_int_equal(result.n_measured + result.n_excluded, s.n);
    assert_true(s.last_arrival_ns > 59e9 && s.last_arrival_ns < 60e9);
    assert_true(fabs(result.completed_rps - 10) < 1.5);
}

TEST(recorded_arrivals_are_scaled_to_the_rate)
{
    struct seen s = {0};

    defaults();
    opts.trace_path = own_trace();
    opts.arrivals = STUDY_CLUSTER_RECORDED;
    run(4, false, (struct cluster_observer){.ctx = &s, .done = on_done});
    assert_int_equal(s.n, 4 * 60);
    assert_int_equal(s.n_apart, 0);
}

/* A lone request on an A100 is its own reference, whatever its size. */
TEST(alone_on_the_reference_nothing_is_slower)
{
    defaults();
    opts.design = 0; /* Baseline-A100 */
    opts.machines = (char *)"1";
    opts.duration_s = 2000;
    opts.trace_path = own_trace();
    run(0.02, false, (struct cluster_observer){0});
    for (int i = 0; i < CLUSTER_N_LATENCIES; i++)
        assert_true(fabs(result.slowdown[i][0] - 1) < 1e-6);
    assert_true(result.met && study_cluster_slo_use(&result) <= 1);
    /* splitwise-sim divides by all tokens, so that TBT seems shorter; KV has all heads */
    opts.rules = STUDY_CLUSTER_SPLITWISE_SIM;
    run(0.02, false, (struct cluster_observer){0});
    assert_true(result.slowdown[CLUSTER_TBT][0] < 0.9);
    assert_true(fabs(result.slowdown[CLUSTER_E2E][0] - 1) < 1e-6);
    assert_int_equal(cluster.cluster.kv_bytes_per_tok, 2621440);
}

/* Stopping early never changes the answer, and stops where the SLOs are missed. */
TEST(stopping_early_is_sound)
{
    int n_stopped = 0;

    defaults();
    opts.machines = (char *)"2P,1T";
    for (double rate = 1; rate < 60; rate *= 1.5) {
        bool met;

        run(rate, false, (struct cluster_observer){0});
        met = result.met;
        run(rate, true, (struct cluster_observer){0});
        assert_true(result.met == met);
        assert_true(!result.stopped || !met);
        n_stopped += result.stopped;
    }
    assert_true(n_stopped > 0);
}

TEST(highest_rate_is_a_bracket)
{
    double rate, above;

    defaults();
    opts.machines = (char *)"2P,1T";
    run(1, false, (struct cluster_observer){0});
    cluster = (struct study_cluster){0};
    assert_ok(study_cluster_open(&cluster, &opts));
    assert_ok(study_cluster_max_rate(&rate, &cluster, 2, 1, 0));
    assert_ok(study_cluster_max_rate(&above, &cluster, 2, 1, 0.5 * rate));
    assert_true(fabs(above / rate - 1) < 0.03);
    assert_ok(study_cluster_max_rate(&above, &cluster, 2, 1, 1.05 * rate));
    assert_true(above == 0);
    study_cluster_close(&cluster);
    assert_true(rate > 1);
    run(rate, true, (struct cluster_observer){0});
    assert_true(result.met);
    run(1.25 * rate, true, (struct cluster_observer){0});
    assert_true(!result.met);
}

/* Each difference alone is that of the other rules, and all together are the other rules. */
TEST(one_difference_at_a_time)
{
    const struct cluster_quirks *q = &cluster.cluster.quirks;

    for (int sim = 0; sim < 2; sim++)
        for (int toggle = 0; toggle <= STUDY_CLUSTER_TBT_OVER_ALL; toggle++) {
            int n;

            defaults();
            opts.rules = sim;
            opts.toggle = toggle;
            cluster = (struct study_cluster){0};
            assert_ok(study_cluster_open(&cluster, &opts));
            n = q->full_length_kv + q->free_links + q->tenfold_layer_wise +
                q->slow_mixed + q->flat_token_time + q->needs_queue +
                q->return_when_idle + q->retry + cluster.tbt_over_all +
                (cluster.cluster.token_load == CLUSTER_LOAD_KV_TOK);
            assert_int_equal(n, (sim ? 10 : 0) + (toggle ? (sim ? -1 : 1) : 0));
            assert_true(q->flat_token_time == (sim ^ (toggle == 5)));
            study_cluster_close(&cluster);
        }
}

/* Printed: 64 sequences take twice as long as one, so that 1.25 x is a quarter of the way. */
TEST(threshold_of_the_slo)
{
    defaults();
    opts.design = 2; /* Splitwise-AA */
    cluster = (struct study_cluster){0};
    assert_ok(study_cluster_open(&cluster, &opts));
    assert_int_equal(cluster.cluster.token_threshold, 64);
    study_cluster_close(&cluster);
    opts.token_threshold = 0;
    assert_ok(study_cluster_open(&cluster, &opts));
    assert_true(cluster.cluster.token_threshold > 10 &&
                cluster.cluster.token_threshold < 30);
    study_cluster_close(&cluster);
}

TEST(machines_of_figure_16_have_one_power)
{
    for (int design = 0; design < 6; design++)
        for (int trace = 0; trace < 2; trace++) {
            int p, t;

            defaults();
            opts.design = design;
            opts.trace = trace;
            cluster = (struct study_cluster){0};
            assert_ok(study_cluster_open(&cluster, &opts));
            assert_ok(study_cluster_machines(&cluster, &p, &t));
            assert_true(study_cluster_power(&cluster, p, t) <= 70);
            assert_true(study_cluster_power(&cluster, p, t) > 68);
            assert_true(cluster.is_baseline == (t == 0));
            study_cluster_close(&cluster);
        }
}

TEST(another_trace_keeps_the_machines)
{
    int p, t;

    defaults();
    opts.sized_for = STUDY_CLUSTER_CODING;
    cluster = (struct study_cluster){0};
    assert_ok(study_cluster_open(&cluster, &opts));
    assert_ok(study_cluster_machines(&cluster, &p, &t));
    assert_true(p == 35 && t == 5);
    study_cluster_close(&cluster);
}

#define SMALL                                                                            \
    "\"machines\": \"2P,2T\", \"points\": \"printed\", \"duration_s\": 30, "             \
    "\"warmup_s\": 5, \"cooldown_s\": 5, \"rate\": 4"

static double last_of(const char *series)
{
    return series_at(series, length_of(series) - 1);
}

TEST(a_cell_says_what_it_rests_on)
{
    assert_ok(capture_run(&study_cluster_load, "{" SMALL ", \"steps\": true}"));
    assert_string_equal(note_of("performance_points"), "printed");
    assert_string_equal(note_of("model_used"), "llama2-70b");
    assert_int_equal(value_of("n_machines"), 4);
    assert_true(value_of("cost_per_hour") == 4 * 38 && value_of("power") == 7);
    assert_true(value_of("slo_met") == (value_of("slo_use") <= 1));
    assert_true(value_of("stuck_frac") == 0 && value_of("refused_frac") == 0);
    assert_true(fabs(last_of("time_frac_prompt") - 1) < 1e-9);
    assert_true(fabs(last_of("time_frac_token") - 1) < 1e-9);
    assert_true(length_of("step_start") > 50 && length_of("move_end") > 20);
    for (int i = 0; i < length_of("step_start"); i++)
        assert_true(series_at("step_end", i) > series_at("step_start", i));
}

#define SEARCH                                                                           \
    "\"points\": \"printed\", \"duration_s\": 30, \"warmup_s\": 5, \"cooldown_s\": 5, "  \
    "\"limit\": \"none\", \"max_prompt\": 6, \"max_token\": 5, \"target_rate\": 20"

/* The search finds what the whole grid has, for both goals, and tries fewer sizes. */
TEST(search_is_the_best_of_the_grid)
{
    static const char *const goals[] = {"cost", "power"};

    for (int i = 0; i < 2; i++) {
        assert_ok(capture_run(&study_cluster_provision,
                              "{" SEARCH ", \"design\": \"Splitwise-HHcap\", \"goal\": "
                              "\"%s\", \"grid\": true}",
                              goals[i]));
        assert_int_equal(length_of("tried_prompt"), 30);
        assert_true(value_of("n_evaluated") < 30 && value_of("rate_rps") == 20);
        if (i == 0)
            assert_true(fabs(value_of("cost_per_hour") - value_of("grid_cost_per_hour")) <
                        1e-6);
        else
            assert_true(fabs(value_of("power") - value_of("grid_power")) < 1e-9);
    }
}

TEST(a_baseline_needs_its_fewest_machines)
{
    int n;

    assert_ok(capture_run(&study_cluster_provision,
                          "{" SEARCH
                          ", \"design\": \"Baseline-H100\", \"goal\": \"cost\"}"));
    n = (int)value_of("n_prompt");
    assert_true(n > 1 && n < 6 && value_of("n_token") == 0);
    for (int i = -1; i <= 0; i++) {
        assert_ok(capture_run(&study_cluster_load,
                              "{\"points\": \"printed\", \"duration_s\": 30, "
                              "\"warmup_s\": 5, \"cooldown_s\": 5, \"rate\": 20, "
                              "\"design\": \"Baseline-H100\", \"machines\": \"%d\"}",
                              n + i));
        assert_int_equal(value_of("slo_met"), i == 0);
    }
}

/* At the power of two DGX-H100: 3 DGX-A100, or one of each kind of HA and no more. */
TEST(limits_hold)
{
    assert_ok(capture_run(&study_cluster_provision,
                          "{\"points\": \"printed\", \"limit_h100\": 2, "
                          "\"duration_s\": 30, \"warmup_s\": 5, \"cooldown_s\": 5, "
                          "\"design\": \"Baseline-A100\"}"));
    assert_int_equal(value_of("n_machines"), 3);
    assert_true(value_of("rate_rps") > 0);
    assert_ok(capture_run(&study_cluster_provision,
                          "{\"points\": \"printed\", \"limit_h100\": 2, "
                          "\"duration_s\": 30, \"warmup_s\": 5, \"cooldown_s\": 5, "
                          "\"design\": \"Splitwise-HA\"}"));
    assert_true(value_of("n_prompt") == 1 && value_of("n_token") == 1);
    assert_true(value_of("power") <= 3.5);
    assert_err(capture_run(&study_cluster_provision,
                           "{\"points\": \"printed\", \"duration_s\": 30, "
                           "\"warmup_s\": 5, \"cooldown_s\": 5, \"limit\": \"none\", "
                           "\"max_prompt\": 2, \"max_token\": 2, \"goal\": \"cost\", "
                           "\"target_rate\": 500}"),
               ERR_NOTFOUND, "reaches a rate of 500");
}

TEST(machines_for_another_trace_are_compared_with_its_own)
{
    static const char *const sized[] = {"conversation", "coding"};
    double rate[2];

    for (int i = 0; i < 2; i++) {
        assert_ok(capture_run(&study_cluster_provision,
                              "{\"points\": \"printed\", \"goal\": \"fixed\", "
                              "\"duration_s\": 12, \"warmup_s\": 2, \"cooldown_s\": 2, "
                              "\"design\": \"Splitwise-HA\", \"sized_for\": \"%s\"}",
                              sized[i]));
        rate[i] = value_of("rate_rps");
        if (i == 0)
            assert_true(value_of("rate_over_own") == 1);
    }
    assert_true(rate[0] > 0 && rate[1] > 0 && rate[0] != rate[1]);
    assert_true(fabs(value_of("rate_over_own") - rate[1] / rate[0]) < 1e-9);
}

TEST(unusable_input)
{
    assert_err(capture_run(&study_cluster_load, "{\"machines\": \"2P2T\"}"), ERR_ARG,
               "expected such as \"25P,15T\", found \"2P2T\"");
    assert_err(capture_run(&study_cluster_load,
                           "{\"machines\": \"2P\", \"design\": \"Baseline-A100\"}"),
               ERR_ARG, "such as \"40\"");
    assert_err(capture_run(&study_cluster_load, "{" SMALL ", \"memory_frac\": 0.01}"),
               ERR_ARG, "no memory is left");
    assert_err(capture_run(&study_cluster_load, "{\"warmup_s\": 100}"), ERR_ARG,
               "leave nothing");
    assert_err(capture_run(&study_cluster_load, "{\"points\": \"published\", "
                                                "\"perf_path\": \"/nowhere.csv\"}"),
               ERR_NOTFOUND, "/nowhere.csv");
    assert_err(capture_run(&study_cluster_load, "{\"trace_path\": \"/nowhere.csv\"}"),
               ERR_NOTFOUND, "/nowhere.csv");
    assert_err(
        capture_run(&study_cluster_load, "{\"machines\": \"2P,2T\", \"rate\": 1e-3}"),
        ERR_ARG, "no request with two tokens");
}

TEST_GROUP(NULL, capture_end);
