/* Times of steps: what curves say, by a file whose answers are known; what is measured of a tiny
 * model, and how the model `host` is judged. */
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_step_profile;

TEST_GROUP(NULL, capture_end);

static int run_file(const char *text)
{
    test_write(test_path("p.csv"), text, strlen(text));
    return capture_run(&study_step_profile, "{\"source\": \"%s\", \"prompt_tok\": 150}",
                       test_path("p.csv"));
}

/* Prompts are fastest in 200 tokens, tokens in batches of 8; power grows with the prompt only. */
TEST(curves_by_hand)
{
    static const char text[] =
        "prompt_size,batch_size,token_size,prompt_time,token_time,average_power,peak_"
        "power\n"
        "100,1,8,20,10,0.5,0.4\n200,1,8,25,10,0.5,0.6\n400,1,8,80,11,0.5,1\n"
        "100,4,8,45,12,0.5,0\n100,8,8,100,20,0.55,0\n100,16,8,250,50,,0\n";

    assert_ok(run_file(text));
    assert_value("prompt_best_tok_ms", 400 / 45.);
    assert_value("prompt_best_at_tok", 400);
    assert_value("prompt_after_best", (1600 / 250.) / (400 / 45.));
    assert_value("single_best_tok_ms", 8);
    assert_value("single_best_at_tok", 200);
    assert_value("single_after_best", 5 / 8.);
    assert_value("prompt_over_linear", 8 / 5.);
    assert_value("prompt_as_tokens", 22.5 / (31 / 3.));
    assert_value("token_best_tok_s", 400);
    assert_value("token_best_at_batch", 8);
    assert_value("token_knee_batch", 8);
    assert_value("token_gain", 400 * 1e-3 * 31 / 3);
    assert_value("largest_batch", 16);
    assert_value("token_slowdown", 5);
    assert_value("token_context_slowdown", 1.1);
    assert_value("power_prompt_growth", 2.5);
    assert_value("power_token_growth", 1.1);
    assert_true(isnan(value_of("host_error"))); /* nothing is left to test */
    assert_string_equal(evidence_of(""), "measured");
}

TEST(power_is_missing_not_none)
{
    assert_ok(run_file(
        "prompt_size,batch_size,token_size,prompt_time,token_time,average_power\n"
        "100,1,8,20,10,0.0\n200,2,8,30,12,0.0\n"));
    assert_true(isnan(value_of("power_prompt_growth")) &&
                isnan(value_of("power_token_growth")));
    assert_true(isnan(series_at("average_power", 0)));
    assert_ok(capture_run(&study_step_profile, "{\"source\": \"printed:h100\"}"));
    assert_string_equal(evidence_of(""), "published");
    assert_value("token_slowdown", 2 * 28 / 29.5);
}

/* Without the traces' files their fits stand in: medians are those of the fits. */
TEST(requests_one_at_a_time)
{
    assert_ok(
        capture_run(&study_step_profile,
                    "{\"source\": \"printed:h100\", \"traces\": true, \"conversation\": "
                    "\"/none\", \"coding\": \"/none\"}"));
    assert_true(fabs(value_of("ttft_p50_conversation") / 84 - 1) < 0.02);
    assert_true(fabs(value_of("ttft_p50_coding") / 95 - 1) < 0.05);
    assert_value("tbt_p50_coding", 29.5);
    assert_true(value_of("e2e_p50_conversation") > 3000 &&
                value_of("e2e_p50_conversation") < 4500);
    assert_value("cost_p50_coding", value_of("e2e_p50_coding") / 3.6e6 * 38);
    assert_true(isnan(value_of("energy_p50_coding")));
    assert_true(value_of("token_bound_frac_conversation") > 0.99);
    assert_string_equal(note_of("trace_coding"), "synth azure_code (stand-in)");
}

static int run_engine(const char *rest)
{
    return capture_run(
        &study_step_profile,
        "{\"model\": \"%s\", \"n_steps\": 3, \"rounds\": 2, "
        "\"prompts\": \"40\", \"contexts\": \"8 24\", \"test_contexts\": \"16\", %s}",
        tiny_model(KERN_BF16), rest);
}

/* Batch 1 after 16 tokens, by the line with least relative errors through its three contexts. */
static double line_of_batch_1(void)
{
    static const int at[] = {0, 1, 4};
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;

    for (int i = 0; i < 3; i++) {
        double l = series_at("prompt_size", at[i]), t = series_at("token_time", at[i]);

        w += 1 / (t * t);
        x += l / (t * t);
        y += 1 / t;
        xx += l * l / (t * t);
        xy += l / t;
    }
    return (y * (xx - 16 * x) + xy * (16 * w - x)) / (w * xx - x * x);
}

/* Points are batches x contexts, prompts and then those to test, each once, and the ratios are of
 * the model that the first ones give. */
TEST(the_engine_is_measured)
{
    static const double batch[] = {1, 1, 4, 4, 1, 2}, prompt[] = {8, 24, 8, 24, 40, 16};

    assert_ok(run_engine("\"batches\": \"1 4 1\", \"test_batches\": \"2\""));
    assert_int_equal(length_of("batch_size"), 6);
    for (int i = 0; i < 6; i++) {
        assert_true(series_at("batch_size", i) == batch[i]);
        assert_true(series_at("prompt_size", i) == prompt[i]);
        assert_true(series_at("prompt_time", i) > 0 && series_at("token_time", i) > 0);
        assert_true(series_at("fitted", i) == (i < 5));
        assert_true(series_at("prompt_spread", i) >= 0 &&
                    series_at("token_spread", i) >= 0);
    }
    assert_string_equal(evidence_of(""), "");
    assert_int_equal(length_of("token_ratios"), 1);
    assert_value("token_ratio",
                 (2 * line_of_batch_1() +
                  (series_at("token_time", 2) + series_at("token_time", 3)) / 2) /
                     3 / series_at("token_time", 5));
    /* two prompts of 16 tokens are as long as four of 8 */
    assert_value("prompt_ratio",
                 series_at("prompt_time", 2) / series_at("prompt_time", 5));
    assert_true(value_of("token_ratio_min") == value_of("token_ratio_max"));
    assert_value("host_error", 100 * fmax(fabs(value_of("prompt_ratio") - 1),
                                          fabs(value_of("token_ratio") - 1)));
    assert_value("host_mape", 50 * (fabs(value_of("prompt_ratio") - 1) +
                                    fabs(value_of("token_ratio") - 1)));
}

TEST(bad_options)
{
    assert_err(run_engine("\"batches\": \"1 x\""), ERR_ARG, "study.batches");
    assert_err(run_engine("\"batches\": \"0\""), ERR_ARG, "at least 1");
    assert_err(capture_run(&study_step_profile, "{}"), ERR_ARG, "study.model");
    assert_err(capture_run(&study_step_profile, "{\"source\": \"a100\"}"), ERR_ARG,
               "MODEL:HARDWARE:TP");
}
