/* The studies that run the engine, on a tiny model: what they report is worked out again from
 * the times of the rounds. */
#include "cpu/cpu.h"
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_phase_switch;

/* With a model made here. */
static int run(const char *rest)
{
    return capture_run(&study_phase_switch, "{\"model\": \"%s\", \"rounds\": 3, %s}",
                       tiny_model(KERN_BF16), rest);
}

/* Of up to ten rounds the estimate is the fastest. */
TEST(a_switch_copies_nothing)
{
    static const char *const ways[] = {"request_s", "request_s_prefill_plan",
                                       "request_s_decode_plan"};
    struct cpu_budget b;

    assert_ok(run("\"n_prompt_tok\": 9, \"n_output_tok\": 3, \"prefill_threads\": 1, "
                  "\"decode_ranks\": 1, \"decode_threads\": 1"));
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
    assert_ok(run("\"n_prompt_tok\": 9, \"n_output_tok\": 3, \"prefill_threads\": 2, "
                  "\"decode_ranks\": 2, \"decode_threads\": 1"));
    assert_true(value_of("bytes_copied") == 0);
}

TEST(ranks_beyond_the_budget_are_refused)
{
    assert_err(run("\"prefill_threads\": 1000"), ERR_ARG, "");
    assert_err(capture_run(&study_phase_switch, "{}"), ERR_ARG, "study.model");
}

TEST_GROUP(NULL, capture_end);
