/* Errors of performance models: nothing for a model whose form made the points, and worked out
 * again for a table of three points. */
#include <math.h>

#include "tests/study/capture.h"

extern const struct study study_perf_models;

TEST_GROUP(NULL, capture_end);

TEST(a_model_fits_its_own_form)
{
    assert_ok(
        capture_run(&study_perf_models,
                    "{\"source\": \"form\", \"perf\": \"distserve\", \"n_splits\": 5}"));
    assert_true(value_of("points_prompt_mape") < 0.01 &&
                value_of("points_token_mape") < 0.01);
    assert_true(value_of("step_prompt_mape") < 0.01 &&
                value_of("inner_token_mape") < 0.01);
    assert_true(value_of("long_prompt_mape") < 0.1 &&
                value_of("context_token_mape") < 0.1);
    assert_true(value_of("n_points") == 19 && value_of("n_rows") == 19);
    assert_string_equal(evidence_of(""), "");
    assert_ok(
        capture_run(&study_perf_models,
                    "{\"source\": \"form\", \"perf\": \"table\", \"n_splits\": 5}"));
    assert_true(value_of("points_prompt_mape") > 1); /* its form is another */
    assert_value("beyond_mape",
                 (value_of("batch_prompt_mape") + value_of("long_prompt_mape") +
                  value_of("batch_token_mape") + value_of("context_token_mape")) /
                     4);
    assert_true(value_of("batch_token_mape") < 0.01 && value_of("long_prompt_mape") > 5);
}

#define HEADER "prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time\n"

static int run(const char *text, const char *keep)
{
    test_write(test_path("p.csv"), text, strlen(text));
    return capture_run(&study_perf_models,
                       "{\"source\": \"%s\", \"keep\": \"%s\", \"train_frac\": 0.67}",
                       test_path("p.csv"), keep);
}

/* Three prompts on no line. The middle one is 100 ms by the others, and was 125; the ends are 150
 * by the others, and were 100 and 100. Rows are as many points, twice. */
TEST(by_hand)
{
    static const char text[] =
        HEADER "100,1,8,100,10,1\n200,1,8,125,10,1\n300,1,8,100,10,1\n"
               "100,1,8,100,10,1\n200,1,8,125,10,1\n300,1,8,100,10,1\n";
    double mean = 0;

    assert_ok(run(text, "all"));
    assert_true(value_of("n_points") == 3 && value_of("n_rows") == 6);
    assert_value("step_prompt_mape", (50 + 20 + 50) / 3.);
    assert_true(isnan(value_of("inner_prompt_mape"))); /* no batch is larger */
    for (int i = 0; i < 200; i++) {                    /* one of three is unseen */
        double e = series_at("points_prompt_mape", i);

        assert_true(fabs(e - 50) < 1e-9 || fabs(e - 20) < 1e-9);
        mean += e / 200;
    }
    assert_value("points_prompt_mape", mean);
    assert_true(mean > 34 && mean < 46);
    assert_true(value_of("rows_prompt_mape") <
                0.7 * mean); /* a repeat is fitted more often */
    assert_value("points_token_mape", 0);
    assert_true(isnan(value_of("long_prompt_mape")));
    assert_string_equal(evidence_of("prompt_tok"), "measured");
    assert_string_equal(evidence_of("repeat_spread"), "measured");
}

TEST(what_is_not_one_batch_can_be_left_out)
{
    static const char text[] =
        HEADER "100,1,8,100,10,180\n200,1,8,200,10,280\n300,1,8,300,10,380\n"
               "100,64,8,100,10,400\n";

    assert_ok(run(text, "all"));
    assert_true(value_of("n_not_one_batch") == 1 && value_of("n_points") == 4);
    assert_true(value_of("batch_prompt_mape") > 100);
    assert_ok(run(text, "one_batch"));
    assert_true(value_of("n_not_one_batch") == 0 && value_of("n_points") == 3);
    assert_true(isnan(value_of("batch_prompt_mape")));
}

TEST(sources_are_named)
{
    assert_err(capture_run(&study_perf_models, "{\"source\": \"a100\"}"), ERR_ARG,
               "MODEL:HARDWARE:TP");
    assert_err(capture_run(&study_perf_models, "{\"source\": \"printed:a200\"}"),
               ERR_NOTFOUND, "a100");
    assert_err(capture_run(&study_perf_models,
                           "{\"source\": \"m:h:8\", \"points\": \"none.csv\"}"),
               ERR_NOTFOUND, "datasets/data.md");
    assert_err(
        capture_run(&study_perf_models, "{\"source\": \"form\", \"perf\": \"tabel\"}"),
        ERR_NOTFOUND, "table");
    assert_ok(capture_run(&study_perf_models,
                          "{\"source\": \"printed:a100\", \"n_splits\": 2}"));
    assert_true(value_of("n_points") == 3);
}

/* The paper's less than 3 % is that of rows whose repeats were fitted. */
TEST(the_published_points)
{
    test_need_data("splitwise_perf/perf_model.csv");
    assert_ok(
        capture_run(&study_perf_models, "{\"source\": \"llama2-70b:h100-80gb:8\"}"));
    assert_true(value_of("n_points") == 19 && value_of("n_rows") == 105);
    assert_true(value_of("rows_mape") < value_of("points_mape"));
    assert_true(value_of("points_mape") < value_of("long_prompt_mape"));
    assert_true(value_of("n_not_one_batch") == 0);
    assert_ok(
        capture_run(&study_perf_models, "{\"source\": \"llama2-70b:h100-80gb:2\"}"));
    assert_true(value_of("n_not_one_batch") == 1);
}
