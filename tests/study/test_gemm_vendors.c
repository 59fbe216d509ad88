/* The study of our GEMMs beside the libraries', with scripted baselines and a made-up machine
 * card: what it says of each, and above all of those that are not there. */
#include "tests/study/capture.h"
#include "tests/study/scripted_baselines.h"

extern const struct study study_gemm_vendors;

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void run(const char *more)
{
    char options[400];

    snprintf(options, sizeof(options),
             "{\"matrix\": \"x 96x64\", \"m\": 5, \"cache_mb\": 1, \"rounds\": 4, "
             "\"cell_s\": 10, \"threads\": 1%s}",
             more);
    assert_ok(capture_run(&study_gemm_vendors, options));
}

/* GFLOP/s of a product of 5 x 96 x 64 in `seconds`. */
static double rate(double seconds)
{
    return 2e-9 * 5 * 96 * 64 / seconds;
}

static void who_is_absent_or_dies_has_a_reason_and_no_number(void **state)
{
    (void)state;
    run("");
    assert_true(near(value_of("gflops_onednn"), rate(2e-3)));
    assert_true(near(value_of("gflops_blis"), rate(3e-3)));
    assert_true(isnan(value_of("gflops_openblas")));
    assert_string_equal(captured("gflops_openblas")->why,
                        "openblas was not built: no library");
    assert_true(isnan(value_of("gflops_libxsmm")));
    assert_string_equal(captured("gflops_libxsmm")->why, "libxsmm died");
    assert_int_equal(length_of("s_libxsmm"), 0);
    assert_int_equal(length_of("s_onednn"), 4);
    assert_true(value_of("n_rounds") == 4);
}

static void the_best_baseline_is_the_fastest_that_lasted(void **state)
{
    (void)state;
    run("");
    assert_true(near(value_of("gflops_best_baseline"), rate(2e-3)));
    assert_true(value_of("error_best_baseline") == 2e-3);
    assert_string_equal(note_of("best_baseline"), "onednn");
    /* Its time is the same in all rounds, so the median of ratios is that of ours. */
    assert_true(value_of("ratio_vs_best") > 0);
    assert_true(value_of("gflops") > 0 &&
                value_of("gflops") == value_of("gflops_default"));
    assert_true(value_of("error") >= 0 && value_of("error") < 1e-5);
}

static void bf16_is_computed_at_both_precisions(void **state)
{
    const json_t *list;

    (void)state;
    run(", \"type\": \"bf16\"");
    assert_true(value_of("gflops") > 0 && value_of("gflops_relaxed") > 0);
    assert_true(value_of("ratio_vs_best_relaxed") > 0);
    assert_true(value_of("error") < 1e-5 && value_of("error_relaxed") < 1e-2);
    assert_string_equal(captured("gflops_blis")->why, "blis has no bf16");
    list = json_object_get(capture.notes, "ours");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(list, 1), "precision")),
        "relaxed");
    assert_non_null(json_object_get(json_array_get(list, 0), "schedule"));
}

static void the_roof_is_said_with_what_it_was_made_of(void **state)
{
    (void)state;
    capture.card = json_pack("{s:[{s:s, s:i, s:f}]}", "values", "name",
                             "peak_f32_fma_any", "n_threads", 1, "estimate", 123.0);
    run("");
    assert_true(value_of("peak_gflops") == 123);
    assert_true(
        near(value_of("roof_gflops"), fmin(123, value_of("read_gbps") * 2 * 5 / 4)));
    assert_true(
        near(value_of("roof_frac"), value_of("gflops") / value_of("roof_gflops")));
    assert_true(near(value_of("peak_frac"), value_of("gflops") / 123));
    run(", \"weights\": \"warm\"");
    assert_true(isnan(value_of("roof_frac")) && isnan(value_of("read_gbps")));
    assert_string_equal(captured("roof_frac")->why,
                        "cached weights are not read from memory");
    json_decref(capture.card);
    capture.card = NULL;
    run("");
    assert_true(isnan(value_of("roof_frac")) && isnan(value_of("peak_frac")));
    assert_string_equal(captured("roof_frac")->why,
                        "no trusted peak in the machine card");
}

static void without_any_baseline_there_is_no_ratio(void **state)
{
    struct script kept[4];

    (void)state;
    memcpy(kept, scripts, sizeof(kept));
    for (int i = 0; i < 4; i++)
        scripts[i].absent = true;
    capture_close();
    run("");
    assert_true(value_of("gflops") > 0);
    assert_true(isnan(value_of("ratio_vs_best")));
    assert_true(isnan(value_of("gflops_best_baseline")));
    assert_string_equal(captured("ratio_vs_best")->why,
                        "no baseline computed this shape");
    memcpy(scripts, kept, sizeof(kept));
}

static void what_is_not_possible_is_skipped_with_a_reason(void **state)
{
    (void)state;
    assert_err(capture_run(&study_gemm_vendors,
                           "{\"matrix\": \"x 1000x1000\", \"weights\": \"warm\", "
                           "\"cache_mb\": 1}"),
               ERR_NOTFOUND, "4.0 MB of weights do not stay in a cache of 1.0 MB");
    assert_err(
        capture_run(&study_gemm_vendors,
                    "{\"matrix\": \"x 1000x1000\", \"m\": 1000, \"max_gflop\": 1}"),
        ERR_NOTFOUND, "2 GFLOP a product");
    assert_err(capture_run(&study_gemm_vendors, "{}"), ERR_ARG, "study.matrix");
}

static void tuning_makes_a_side_of_its_own_or_says_why_not(void **state)
{
    (void)state;
    run(", \"tune_s\": 0.05");
    if (isnan(value_of("gflops_tuned"))) {
        assert_string_equal(captured("gflops_tuned")->why,
                            "the tuned schedule is the default one");
        assert_true(value_of("gflops") == value_of("gflops_default"));
    } else {
        assert_true(value_of("gflops") == value_of("gflops_tuned"));
    }
    run("");
    assert_true(isnan(value_of("gflops_tuned")));
}

static void a_cache_of_schedules_is_read(void **state)
{
    char more[300], path[160];

    (void)state;
    snprintf(path, sizeof(path), "%s/none.json", test_dir());
    snprintf(more, sizeof(more), ", \"cache\": \"%s\"", path);
    run(more); /* absent: an empty one, so the default */
    assert_true(value_of("gflops") == value_of("gflops_default"));
    test_write(path, "{", 1);
    snprintf(more, sizeof(more),
             "{\"matrix\": \"x 96x64\", \"cache_mb\": 1, \"cache\": "
             "\"%s\"}",
             path);
    assert_true(capture_run(&study_gemm_vendors, more) != OK);
    assert_non_null(strstr(err_msg(), "none.json"));
}

static void nothing_stays_open(void **state)
{
    (void)state;
    capture_close();
    assert_int_equal(baselines_open, 0);
    capture_close();
    assert_true(shapes_made > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_absent_or_dies_has_a_reason_and_no_number),
        cmocka_unit_test(the_best_baseline_is_the_fastest_that_lasted),
        cmocka_unit_test(bf16_is_computed_at_both_precisions),
        cmocka_unit_test(the_roof_is_said_with_what_it_was_made_of),
        cmocka_unit_test(without_any_baseline_there_is_no_ratio),
        cmocka_unit_test(what_is_not_possible_is_skipped_with_a_reason),
        cmocka_unit_test(tuning_makes_a_side_of_its_own_or_says_why_not),
        cmocka_unit_test(a_cache_of_schedules_is_read),
        cmocka_unit_test(nothing_stays_open),
    };

    return cmocka_run_group_tests_name("study/gemm_vendors", tests, NULL, capture_end);
}
