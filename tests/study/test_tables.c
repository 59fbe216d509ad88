/* Tables 1, 3 and 4 of Sandwich: what the studies report follows from the raw times that they
 * record, and their plan is the one that the method of planning gives. */
#include "tests/study/capture.h"
#include "make/make.h"
#include "measure/compare.h"
#include "plan/method.h"
#include "simulate/contention.h"
#include "tests/support/tiny_model.h"

extern const struct study study_ablation, study_window, study_plan_search;

static const char *const steps[] = {"one_plan",       "rank_shifted",  "communication",
                                    "service_config", "kernel_tuning", "split_k"};
#define N_STEPS ((int)(sizeof(steps) / sizeof(steps[0])))
enum { COMMUNICATION = 2, SERVICE_CONFIG = 3 };
#define ROUNDS 3

/* Of few rounds the estimate is the fastest one. */
static double smallest(const char *series, int n)
{
    assert_int_equal(length_of(series), n);
    return series_min(series);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("got %.17g, wanted %.17g", got, want);
}

/* ---- this host ---- */

/* Every later alternative is slower, or faster. */
static int rising(void *arg, int alternative, struct measure_trial *t)
{
    (void)arg;
    t->seconds = 1 + alternative;
    return OK;
}

static int falling(void *arg, int alternative, struct measure_trial *t)
{
    (void)arg;
    t->seconds = 1.0 / (1 + alternative);
    return OK;
}

static void run_tiny(void)
{
    assert_ok(capture_run(
        &study_ablation,
        "{\"model\": \"%s\", \"rounds\": %d, \"batch\": 2, \"n_prompt_tok\": 5, "
        "\"n_output_tok\": 3, \"tune_s\": 0.01, \"search_s\": 0.2}",
        tiny_model(KERN_BF16), ROUNDS));
}

TEST(rates_follow_from_the_recorded_rounds)
{
    char name[64], series[64];

    run_tiny();
    for (int s = 0; s < N_STEPS; s++) {
        snprintf(name, sizeof(name), "raw_tok_s_%s", steps[s]);
        snprintf(series, sizeof(series), "raw_request_s_%s", steps[s]);
        near(value_of(name), 2 * 3 / smallest(series, ROUNDS));
        snprintf(name, sizeof(name), "tok_s_%s", steps[s]);
        snprintf(series, sizeof(series), "request_s_%s", steps[s]);
        near(value_of(name), 2 * 3 / smallest(series, ROUNDS));
    }
    near(value_of("tok_s_one_plan"), value_of("raw_tok_s_one_plan"));
    near(value_of("gain_communication"),
         ratio_middle("raw_request_s_one_plan", "raw_request_s_communication"));
    near(value_of("gain_split_k"),
         ratio_middle("raw_request_s_kernel_tuning", "raw_request_s_split_k"));
    near(value_of("speedup_all"),
         ratio_middle("request_s_one_plan", "request_s_split_k"));
    assert_true(value_of("n_kept") >= 0 && value_of("n_kept") <= 10);
    assert_true(value_of("tuning_s") > 0 && value_of("plan_s") > 0);
    assert_string_equal(evidence_of(""), ""); /* the job's */
    assert_string_equal(evidence_of("token_bytes"), "model");
}

/* By scripted times: a slower step is taken back in both phases, a faster one is kept, and the
 * raw rows are those of the steps whatever is kept. */
TEST(a_slower_step_is_taken_back)
{
    char name[64];

    measure_script(rising, NULL);
    run_tiny();
    for (int s = 0; s < N_STEPS; s++) {
        snprintf(name, sizeof(name), "raw_tok_s_%s", steps[s]);
        near(value_of(name), 6.0 / (1 + s)); /* in the order of the steps */
        near(value_of(name + strlen("raw_")), 6);
    }
    near(value_of("gain_service_config"), 3.0 / 4);
    assert_true(value_of("n_kept") == 0);
    measure_script(falling, NULL);
    run_tiny();
    measure_script(NULL, NULL);
    for (int s = 0; s < N_STEPS; s++) {
        /* of tuned steps, what is kept has products that were compared with the default */
        int checked = s > SERVICE_CONFIG ? N_STEPS + s - SERVICE_CONFIG - 1 : s;

        snprintf(name, sizeof(name), "raw_tok_s_%s", steps[s]);
        near(value_of(name), 6.0 * (1 + s));
        near(value_of(name + strlen("raw_")), 6.0 * (1 + checked));
    }
    assert_true(value_of("n_kept") == 2 * (N_STEPS - 1));
}

static double member(const char *phase, const char *key)
{
    const json_t *p = json_object_get(json_object_get(capture.notes, "plan"), phase);

    return json_number_value(json_object_get(p, key));
}

static int n_ranks(const char *phase)
{
    const json_t *p = json_object_get(json_object_get(capture.notes, "plan"), phase);

    return (int)json_array_size(json_object_get(p, "ranks"));
}

TEST(the_plan_of_the_host_is_recorded)
{
    assert_int_equal((int)value_of("prefill_ranks"), n_ranks("prefill"));
    assert_int_equal((int)value_of("decode_ranks"), n_ranks("decode"));
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(capture.notes, "plan"), "method")),
                        "search");
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(capture.notes, "plan"), "evidence")),
                        "measured");
}

/* ---- a simulated machine ---- */

#define TARGET     "llama-160m@xeon6230x2"
#define BATCH      2
#define PROMPT_TOK 64
#define OUTPUT_TOK 16

/* The plan by the method itself, without the studies' code. */
static void plan_by(const char *name, struct plan_search_result *out)
{
    static const int64_t prompt = PROMPT_TOK, output = OUTPUT_TOK;
    struct topo_machine *machine = NULL;
    struct model_config model;
    char params[512];
    struct plan_search_opts o = {.model = &model,
                                 .types = {KERN_BF16, KERN_KV_F32},
                                 .batch = BATCH,
                                 .one_team = true,
                                 .costs_s = -1};
    const struct plan_method *m;

    assert_ok(simulate_named_machine_open(
        &machine, "xeon6230x2", "engine/simulate/machines", params, sizeof(params)));
    assert_ok(make_config("llama-160m", &model));
    o.e = (struct plan_evaluator_opts){
        .machine = machine, .machine_params_path = params, .batch = BATCH, .seed = 7};
    assert_ok(plan_evaluator_find("contention", &o.evaluator));
    assert_ok(plan_trace_of(&o.trace, &(struct plan_lengths){&prompt, &output, 1},
                            model.max_tok));
    assert_ok(opt_init(plan_tree_search_opt_table, &o.search));
    o.search.seed = 7;
    assert_ok(plan_method_find(name, &m));
    assert_ok(m->run(out, &o));
    topo_machine_close(&machine);
}

static double tok_s(double prefill_s, double decode_s)
{
    return BATCH * OUTPUT_TOK / (BATCH * prefill_s + (OUTPUT_TOK - 1) * decode_s);
}

/* Regression: Table 1's configuration was hand-made, and its rows hid what a step lost
 * before it was taken back. */
TEST(the_configuration_is_that_of_the_plan_method)
{
    static struct plan_search_result search, even;
    char name[64];
    json_t *plan;

    assert_ok(capture_run(
        &study_ablation,
        "{\"model\": \"%s\", \"batch\": %d, \"n_prompt_tok\": %d, \"n_output_tok\": "
        "%d, \"seed\": 7}",
        TARGET, BATCH, PROMPT_TOK, OUTPUT_TOK));
    plan_by("search", &search);
    plan_by("even_split", &even);
    plan = plan_to_json(&search.plan);
    assert_true(json_equal(plan, json_object_get(capture.notes, "plan")));
    near(value_of("raw_tok_s_service_config"),
         tok_s(search.plan.prefill.expected_s, search.plan.decode.expected_s));
    near(value_of("raw_tok_s_service_config"),
         tok_s(member("prefill", "expected_s"), member("decode", "expected_s")));
    near(value_of("raw_tok_s_communication"),
         tok_s(even.plan.prefill.expected_s, even.plan.decode.expected_s));
    near(value_of("tok_s_service_config"),
         fmax(value_of("raw_tok_s_service_config"), value_of("raw_tok_s_communication")));
    for (int s = 0; s < N_STEPS; s++) {
        snprintf(name, sizeof(name), "raw_tok_s_%s", steps[s]);
        if (s != COMMUNICATION && s != SERVICE_CONFIG)
            assert_true(isnan(value_of(name)) && captured(name)->why[0]);
    }
    assert_string_equal(evidence_of(""), "simulated");
    assert_string_equal(evidence_of("plan_s"), "measured");
    json_decref(plan);
    plan_search_result_free(&search);
    plan_search_result_free(&even);
}

TEST(targets_that_are_none_are_refused)
{
    assert_err(capture_run(&study_ablation, "{\"model\": \"no/such.gguf\"}"), ERR_IO,
               "no/such.gguf");
    assert_err(capture_run(&study_ablation, "{}"), ERR_ARG, "study.model");
    assert_err(capture_run(&study_ablation, "{\"model\": \"llama-160@xeon6230x2\"}"),
               ERR_NOTFOUND, "did you mean \"llama-160m\"");
    assert_err(capture_run(&study_plan_search, "{\"model\": \"llama-160m@xeon6230\"}"),
               ERR_NOTFOUND, "did you mean \"xeon6230x2\"");
    assert_err(
        capture_run(&study_plan_search, "{\"model\": \"llama-160m:f3@xeon6230x2\"}"),
        ERR_ARG, "f3");
}

/* ---- what the search costs ---- */

TEST(the_cost_is_that_of_the_machine)
{
    double first;

    for (int i = 0; i < 2; i++) {
        assert_ok(capture_run(&study_plan_search,
                              "{\"model\": \"llama-160m:f32@xeon6230x2\", "
                              "\"n_requests\": 20, \"max_s\": 3600}"));
        first = i ? first : value_of("graph_tuning_s");
        assert_true(value_of("graph_tuning_s") == first); /* not time of this host */
    }
    assert_true(value_of("measuring_s") == first && first > 0);
    /* two phases, each configuration once at least */
    assert_true(value_of("n_measurements") >= value_of("n_configs"));
    assert_int_equal((int)value_of("decode_ranks"), n_ranks("decode"));
    assert_string_equal(evidence_of(""), "simulated");
    assert_string_equal(evidence_of("search_s"), "measured");
    assert_string_equal(evidence_of("peak_rss_mb"), "measured");
    assert_ok(capture_run(
        &study_plan_search,
        "{\"model\": \"%s\", \"n_requests\": 3, \"max_tok\": 9, \"max_s\": 0.2}",
        tiny_model(KERN_BF16)));
    assert_true(value_of("graph_tuning_s") == value_of("search_s"));
    assert_true(isnan(value_of("measuring_s")));
    assert_string_equal(evidence_of(""), "");
}

/* ---- the window ---- */

/* Regression: Table 3 loaded no schedule into the engine, and the length of the window
 * also set when it freezes. */
TEST(requests_follow_from_the_recorded_rounds)
{
    assert_ok(capture_run(
        &study_window,
        "{\"model\": \"%s\", \"rounds\": %d, \"sigma\": 3, \"freeze\": 1, "
        "\"n_shapes\": 4, \"n_prompt_tok\": 12, \"n_output_tok\": 3, \"cache_mb\": 1, "
        "\"budget_s\": 0.05}",
        tiny_model(KERN_F32), ROUNDS));
    near(value_of("ttft_ms"), 1e3 * smallest("prefill_s", ROUNDS));
    near(value_of("ttft_ms_default"), 1e3 * smallest("prefill_s_default", ROUNDS));
    near(value_of("tok_s"),
         3 / (smallest("prefill_s", ROUNDS) + smallest("decode_s", ROUNDS)));
    near(value_of("tok_s_default"), 3 / (smallest("prefill_s_default", ROUNDS) +
                                         smallest("decode_s_default", ROUNDS)));
    assert_value("ttft_gain", ratio_middle("prefill_s_default", "prefill_s"));
    /* four matrices of a layer, each for the drawn values of M and the two of requests */
    assert_true(value_of("n_shapes") >= 4 * 4 && value_of("n_shapes") <= 4 * 2 * 6);
    assert_true(value_of("n_measurements") > 0 && value_of("tuning_s") > 0);
    assert_true(value_of("tuning_wall_s") >= value_of("tuning_s"));
    assert_true(value_of("n_frozen") < value_of("n_shapes"));
}

/* A longer window searches more; without a run of like choices nothing is frozen. */
TEST(the_window_and_freezing_reach_the_policy)
{
    static const char form[] =
        "{\"model\": \"%s\", \"rounds\": 3, \"sigma\": %d, \"freeze\": %d, \"n_shapes\": "
        "8, "
        "\"n_prompt_tok\": 12, \"n_output_tok\": 2, \"cache_mb\": 1}";

    assert_ok(capture_run(&study_window, form, tiny_model(KERN_F32), 1, 1000));
    assert_true(value_of("n_frozen") == 0);
    assert_ok(capture_run(&study_window, form, tiny_model(KERN_F32), 1, 1));
    assert_true(value_of("n_frozen") < value_of("n_shapes"));
}

TEST_GROUP(NULL, capture_end);
