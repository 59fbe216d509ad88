/* Lengths of traces: those of the published files, and how near the drawn ones are. */
#include "tests/study/capture.h"

extern const struct study study_trace_lengths;

TEST_GROUP(NULL, capture_end);

static void run(const char *trace, const char *source)
{
    assert_ok(capture_run(&study_trace_lengths,
                          "{\"trace\": \"%s\", \"source\": \"%s\", \"n\": 5000}", trace,
                          source));
}

TEST(files_are_the_published_ones)
{
    test_need_data("azure_llm_2023/AzureLLMInferenceTrace_code.csv");
    run("conversation", "file");
    assert_true(value_of("prompt_p50_tok") == 1020 && value_of("output_p50_tok") == 129);
    assert_true(value_of("n_requests") == 19366 && isnan(value_of("prompt_ks")));
    assert_string_equal(evidence_of(""), "published");
    run("coding", "file");
    assert_true(value_of("prompt_p50_tok") == 1469 && value_of("output_p50_tok") == 13);
    assert_true(value_of("prompt_most_tok") == 7437 && value_of("n_requests") == 8819);
    run("coding", "fit");
    assert_true(value_of("prompt_ks") < 0.1 && value_of("output_ks") < 0.1);
    assert_true(fabs(value_of("ks_by_chance") - 1.358 * sqrt(1 / 5000. + 1 / 8819.)) <
                1e-9);
}

TEST(fits_need_no_file)
{
    const char *before = getenv("SANDWICH_DATA");
    char *old = before ? strdup(before) : NULL;

    setenv("SANDWICH_DATA", "/no/such/folder", 1);
    run("coding", "fit");
    assert_string_equal(evidence_of(""), "model");
    assert_true(fabs(value_of("prompt_p50_tok") / 1469 - 1) < 0.1);
    assert_true(isnan(value_of("prompt_ks")) && isnan(value_of("ks_by_chance")));
    assert_int_equal(length_of("prompt_tok"), 200);
    for (int i = 1; i < 200; i++)
        assert_true(series_at("prompt_tok", i) >= series_at("prompt_tok", i - 1));
    assert_err(capture_run(&study_trace_lengths, "{\"trace\": \"coding\"}"), ERR_NOTFOUND,
               "datasets/data.md");
    if (old)
        setenv("SANDWICH_DATA", old, 1);
    else
        unsetenv("SANDWICH_DATA");
    free(old);
}
