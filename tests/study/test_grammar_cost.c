/* grammar_cost: each schema allows the tokens of its texts, costs are those of its series, and a
 * schema that is longer takes longer to read. */
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_grammar_cost;

TEST_GROUP(NULL, capture_end);

static void run(const char *schema)
{
    assert_ok(capture_run(&study_grammar_cost,
                          "{\"model\": \"%s\", \"schema\": \"%s\", \"max_chars\": 24, "
                          "\"n_prompt_tok\": 3, \"n_output_tok\": 20, \"rounds\": 7}",
                          tiny_model(KERN_BF16), schema));
}

TEST(texts_obey_and_costs_are_medians_of_the_rounds)
{
    static const char *const schemas[] = {"flat", "nested", "texts"};

    for (int i = 0; i < 3; i++) {
        run(schemas[i]);
        assert_int_equal(length_of("cost_us"), 7);
        assert_value("cost_us", series_middle("cost_us"));
        assert_value("cost_new_us", series_middle("cost_new_us"));
        assert_true(captured("cost_frac")->lo <= value_of("cost_frac") &&
                    value_of("cost_frac") <= captured("cost_frac")->hi);
        assert_true(value_of("allowed_frac") > 0 && value_of("allowed_frac") < 1);
        assert_true(value_of("compile_ms") > 0 && value_of("vocab_ms") > 0);
    }
}

TEST(sizes_of_schemas)
{
    double last = 0;
    static const char *const schemas[] = {"flat", "nested", "large"};

    for (int i = 0; i < 3; i++) {
        run(schemas[i]);
        assert_true(value_of("schema_kb") > 3 * last);
        last = value_of("schema_kb");
    }
}

TEST(no_model)
{
    assert_int_not_equal(capture_run(&study_grammar_cost, "{\"model\": \"none.gguf\"}"),
                         OK);
}
