/* long_context: rates follow from the times of its rounds, and shares of bytes from the model. */
#include "model/cost.h"
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_long_context;

TEST_GROUP(NULL, capture_end);

static void run(const char *kv_type, const char *precision)
{
    assert_ok(
        capture_run(&study_long_context,
                    "{\"model\": \"%s\", \"kv_type\": \"%s\", \"precision\": \"%s\", "
                    "\"n_ctx_tok\": 90, \"n_short_tok\": 20, \"n_steps\": 2, "
                    "\"rounds\": 3, \"read_s\": 0.01, \"read_mb\": 16}",
                    tiny_model(KERN_BF16), kv_type, precision));
}

/* Without a card what needs a peak is missing; all else is there. */
TEST(rates_follow_from_times)
{
    static const char *const precisions[] = {"exact", "relaxed", "a8"};
    static const char *const types[] = {"f32", "bf16", "q8"};

    for (int i = 0; i < 3; i++) {
        run(types[i], precisions[i]);
        assert_int_equal(length_of("long_s_each"), 3);
        /* the lowest decile of three times is their smallest */
        assert_value("prefill_tok_s", 90 / series_min("long_s_each"));
        assert_value("short_tok_s", 20 / series_min("short_s_each"));
        assert_value("prefill_over_short",
                     value_of("prefill_tok_s") / value_of("short_tok_s"));
        assert_value("decode_tok_s", 1 / series_min("decode_s_each"));
        assert_true(value_of("attention_frac") > 0 && value_of("attention_frac") < 1);
        assert_true(isnan(value_of("prefill_roof_frac")));
        assert_true(isnan(value_of("attention_peak_frac")));
        assert_string_equal(evidence_of("kv_bytes_frac"), "model");
    }
}

/* Bytes of a key or value: 2 for each element, or 1 and 4 for each vector. */
TEST(bytes_of_keys_and_values)
{
    double frac, weights_over_bf16;

    run("bf16", "relaxed");
    frac = value_of("kv_bytes_frac");
    assert_true(frac > 0 && frac < 1);
    weights_over_bf16 = 1 / frac - 1;
    run("f32", "relaxed");
    assert_value("kv_bytes_frac", 1 / (1 + weights_over_bf16 / 2));
}

TEST(no_model)
{
    assert_int_not_equal(capture_run(&study_long_context, "{\"model\": \"none.gguf\"}"),
                         OK);
}
