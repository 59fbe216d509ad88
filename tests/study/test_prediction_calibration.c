/* prediction_calibration: the published records as they are, with controls that do not hold, and
 * the scores of predictions that records have. */
#include "tests/study/capture.h"

extern const struct study study_prediction_calibration;

static double run_of(const char *options, const char *name)
{
    assert_ok(capture_run(&study_prediction_calibration, "%s", options));
    return value_of(name);
}

TEST(published_records_with_their_controls)
{
    const double as_is = run_of("{}", "inside_95");

    assert_true(value_of("n_experiments_two") > 20 && value_of("n_machines") >= 2);
    assert_true(value_of("n_experiments") >= value_of("n_experiments_two"));
    assert_true(value_of("inside_50") <= value_of("inside_80") &&
                value_of("inside_80") <= as_is && as_is <= 1);
    assert_true(value_of("half_50") <= value_of("half_80") &&
                value_of("half_80") <= value_of("half_95"));
    assert_true(run_of("{\"control\": \"halved\"}", "inside_95") < as_is);
    assert_true(run_of("{\"control\": \"exchanged\"}", "inside_95") < as_is);
    assert_true(run_of("{\"numbers\": \"all\"}", "n_headlines") >
                run_of("{\"numbers\": \"seen\"}", "n_headlines"));
    assert_true(run_of("{\"predictor\": \"roof\"}", "n_headlines") <
                run_of("{\"predictor\": \"records\"}", "n_headlines"));
}

static void put_head(const char *home, const char *machine, const char *experiment,
                     const char *run)
{
    char text[1200];
    FILE *f;

    snprintf(text, sizeof(text), "mkdir -p %s/results/published/%s/%s", home, machine,
             experiment);
    assert_int_equal(system(text), 0);
    snprintf(text, sizeof(text), "%s/results/published/%s/%s/latest.json", home, machine,
             experiment);
    f = fopen(text, "w");
    assert_non_null(f);
    fprintf(
        f,
        "{\"evidence\": \"measured\", \"run\": {%s}, \"headline\": {\"a\": {\"value\": "
        "2, \"unit\": \"x\"}}}",
        run);
    assert_int_equal(fclose(f), 0);
}

TEST(scores_of_records_are_added_once)
{
    const char *const scored =
        "\"prediction_sha256\": \"%s\", \"prediction_n\": 4, \"prediction_narrow\": 1, "
        "\"prediction_inside_50\": 2, \"prediction_inside_80\": 3, "
        "\"prediction_inside_95\": 4";
    char home[512], run[400];

    snprintf(home, sizeof(home), "%s/home", test_dir());
    for (int e = 0; e < 5; e++) {
        char name[16];

        snprintf(name, sizeof(name), "e%d", e);
        snprintf(run, sizeof(run), scored, e < 2 ? "same" : name);
        put_head(home, "a", name, e < 4 ? run : "");
        put_head(home, "b", name, "");
    }
    setenv("SANDWICH_HOME", home, 1);
    assert_true(run_of("{}", "scored_records") == 3); /* e0 or e1, e2, e3 */
    unsetenv("SANDWICH_HOME");
    assert_true(value_of("scored_headlines") == 12);
    assert_true(value_of("scored_inside_50") == 0.5 && value_of("scored_inside_95") == 1);
    assert_true(value_of("scored_narrow_frac") == 0.25);
    assert_true(value_of("inside_95") == 1 && value_of("narrow_frac") == 1);
}

TEST_GROUP(NULL, capture_end);
