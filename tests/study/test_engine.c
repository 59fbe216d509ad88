/* The studies that run the engine, on a tiny model: what they report is worked out again from
 * the times of the rounds. */
#include "cpu/cpu.h"
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_phase_switch, study_ablation;

static char options[600];

/* Options with a model made here. */
static const char *with_model(const char *rest)
{
    snprintf(options, sizeof(options), "{\"model\": \"%s\", \"rounds\": 3, %s}",
             tiny_model(KERN_BF16), rest);
    return options;
}

/* Of up to ten rounds the estimate is the fastest. */
static void a_switch_copies_nothing(void **state)
{
    static const char *const ways[] = {"request_s", "request_s_prefill_plan",
                                       "request_s_decode_plan"};
    struct cpu_budget b;

    (void)state;
    assert_ok(capture_run(
        &study_phase_switch,
        with_model("\"n_prompt_tok\": 9, \"n_output_tok\": 3, \"prefill_threads\": 1, "
                   "\"decode_ranks\": 1, \"decode_threads\": 1")));
    assert_true(value_of("bytes_copied") == 0);
    assert_true(value_of("repack_ms") > 0);
    assert_int_equal(length_of("switch_us"), 3);
    assert_value("switch_us_p50", series_middle("switch_us"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(length_of(ways[i]), 3);
        assert_value(ways[i], series_min(ways[i]));
    }
    assert_value(
        "speedup_vs_best_one_plan",
        ratio_middle(ways[series_min(ways[1]) < series_min(ways[2]) ? 1 : 2], ways[0]));
    assert_true(note_of("kernels")[0] && note_of("cpus")[0]);
    assert_ok(cpu_budget_get(&b));
    if (b.n < 2)
        test_skip("phases that differ need two CPUs, this process has one");
    assert_ok(capture_run(
        &study_phase_switch,
        with_model("\"n_prompt_tok\": 9, \"n_output_tok\": 3, \"prefill_threads\": 2, "
                   "\"decode_ranks\": 2, \"decode_threads\": 1")));
    assert_true(value_of("bytes_copied") == 0);
}

static void ranks_beyond_the_budget_are_refused(void **state)
{
    (void)state;
    assert_err(capture_run(&study_phase_switch, with_model("\"prefill_threads\": 1000")),
               ERR_ARG, "");
    assert_err(capture_run(&study_phase_switch, "{}"), ERR_ARG, "study.model");
    assert_err(capture_run(&study_ablation, "{\"model\": \"no/such.gguf\"}"), ERR_IO,
               "no/such.gguf");
}

static void every_step_of_the_ablation_is_measured(void **state)
{
    static const char *const steps[] = {"one_plan", "communication", "service_config",
                                        "kernel_tuning", "split_k"};
    char name[64];

    (void)state;
    assert_ok(capture_run(&study_ablation,
                          with_model("\"batch\": 2, \"n_prompt_tok\": 5, "
                                     "\"n_output_tok\": 3, \"tune_s\": 0.01")));
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof(name), "tok_s_%s", steps[i]);
        assert_int_equal(length_of(name), 3);
        assert_value(name, series_max(name)); /* of the fastest round */
    }
    assert_value("speedup_all",
                 series_max("tok_s_split_k") / series_max("tok_s_one_plan"));
    assert_true(value_of("decode_ranks") >= 1 && value_of("prefill_ranks") >= 1);
    assert_true(value_of("tuning_s") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_switch_copies_nothing),
        cmocka_unit_test(ranks_beyond_the_budget_are_refused),
        cmocka_unit_test(every_step_of_the_ablation_is_measured),
    };

    return cmocka_run_group_tests_name("study/engine", tests, NULL, capture_end);
}
