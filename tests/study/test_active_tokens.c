/* Active tokens over busy time: one simulated machine with requests far apart, and a tiny model in
 * real time. */
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_active_tokens;

TEST_GROUP(NULL, capture_end);

/* Requests that never meet: a step is a whole prompt or one token. */
TEST(one_request_at_a_time)
{
    double tokens;

    assert_ok(capture_run(
        &study_active_tokens,
        "{\"source\": \"llama2-70b\", \"design\": \"Baseline-H100\", \"machines\": "
        "\"1\", \"points\": "
        "\"printed\", \"rate\": 0.01, \"duration_s\": 20000, \"trace\": \"coding\"}"));
    tokens = value_of("tok_1_frac");
    assert_true(tokens > 0.5 && tokens < 0.99);
    assert_value("tok_20_frac", series_at("time_frac", 8));
    assert_true(fabs(value_of("tok_1_frac") - series_at("time_frac", 0)) < 1e-12);
    assert_true(value_of("busy_frac") < 0.05);
    assert_true(fabs(value_of("prompt_frac") + value_of("tok_100_frac") - 1) < 1e-9);
    assert_string_equal(evidence_of(""), "simulated");
}

TEST(more_load_has_more_active_tokens)
{
    double few;

    assert_ok(capture_run(&study_active_tokens,
                          "{\"source\": \"llama2-70b\", \"design\": \"Baseline-H100\", "
                          "\"machines\": \"1\", \"points\": "
                          "\"printed\", \"rate\": 0.5}"));
    few = value_of("tok_20_frac");
    assert_ok(capture_run(&study_active_tokens,
                          "{\"source\": \"llama2-70b\", \"design\": \"Baseline-H100\", "
                          "\"machines\": \"1\", \"points\": "
                          "\"printed\", \"rate\": 8}"));
    assert_true(value_of("tok_20_frac") < few);
}

TEST(the_engine_serves)
{
    for (int i = 1; i < length_of("time_frac"); i++)
        assert_true(series_at("time_frac", i) >= series_at("time_frac", i - 1));
    assert_ok(capture_run(
        &study_active_tokens,
        "{\"source\": \"engine\", \"engine_model\": \"%s\", \"points\": \"printed\", "
        "\"rate\": 50, \"engine_s\": 1, "
        "\"shorter\": 500}",
        tiny_model(KERN_BF16)));
    assert_true(value_of("n_requests") > 10);
    assert_true(value_of("busy_frac") > 0 && value_of("busy_frac") <= 1);
    assert_true(series_at("time_frac", length_of("time_frac") - 1) > 0.999999);
    assert_string_equal(evidence_of(""), "");
    assert_err(capture_run(&study_active_tokens,
                           "{\"source\": \"engine\", \"points\": \"printed\"}"),
               ERR_ARG, "study.engine_model");
}
