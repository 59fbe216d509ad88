/* The study of our GEMMs and the libraries', with scripted baselines and a made-up machine
 * card: what it says of each, and above all of those that are not there. */
#include "base/stats_interval.h"
#include "measure/compare.h"
#include "tests/study/capture.h"
#include "tests/study/scripted_baselines.h"

extern const struct study study_gemm_vendors;

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void run(const char *more)
{
    assert_ok(
        capture_run(&study_gemm_vendors,
                    "{\"matrix\": \"x 96x64\", \"m\": 5, \"cache_mb\": 1, \"rounds\": 4, "
                    "\"cell_s\": 10, \"threads\": 1%s}",
                    more));
}

/* GFLOP/s of a product of 5 x 96 x 64 in `seconds`. */
static double rate(double seconds)
{
    return 2e-9 * 5 * 96 * 64 / seconds;
}

TEST(who_is_absent_or_dies_has_a_reason_and_no_number)
{
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

/* One run of ours warms up. */
static int failing(void *arg, int alternative, struct measure_trial *t)
{
    (void)alternative;
    t->seconds = 1;
    return ++*(int *)arg == 2 ? err_set(ERR_IO, "the run failed") : OK;
}

TEST(without_time_three_rounds_are_run)
{
    int n = 0;

    assert_ok(capture_run(&study_gemm_vendors,
                          "{\"matrix\": \"x 96x64\", \"m\": 5, \"cache_mb\": 1, "
                          "\"cell_s\": 0, \"threads\": 1}"));
    assert_true(value_of("n_rounds") == 3 && length_of("s_default") == 3);
    assert_value("gflops", rate(series_min("s_default")));
    measure_script(failing, &n);
    assert_err(
        capture_run(&study_gemm_vendors,
                    "{\"matrix\": \"x 96x64\", \"weights\": \"warm\", \"threads\": 1}"),
        ERR_IO, "the run failed");
    measure_script(NULL, NULL);
}

TEST(the_best_baseline_is_the_fastest_that_lasted)
{
    run("");
    assert_true(near(value_of("gflops_best_baseline"), rate(2e-3)));
    assert_true(value_of("error_best_baseline") == 2e-3);
    assert_string_equal(note_of("best_baseline"), "onednn");
    assert_true(value_of("ratio_default_vs_best") > 0);
    assert_true(value_of("gflops") > 0 &&
                value_of("gflops") == value_of("gflops_default"));
    assert_true(value_of("error") >= 0 && value_of("error") < 1e-5);
}

TEST(bf16_is_computed_at_both_precisions)
{
    const json_t *list;

    run(", \"type\": \"bf16\"");
    assert_true(value_of("gflops") > 0 && value_of("gflops_relaxed") > 0);
    assert_true(value_of("ratio_default_vs_best_relaxed") > 0);
    assert_true(value_of("error") < 1e-5 && value_of("error_relaxed") < 1e-2);
    assert_string_equal(captured("gflops_blis")->why, "blis has no bf16");
    list = json_object_get(capture.notes, "ours");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(list, 1), "precision")),
        "relaxed");
    assert_non_null(json_object_get(json_array_get(list, 0), "schedule"));
}

TEST(the_roof_is_said_with_what_it_was_made_of)
{
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

TEST(without_any_baseline_there_is_no_ratio)
{
    struct script kept[4];

    memcpy(kept, scripts, sizeof(kept));
    for (int i = 0; i < 4; i++)
        scripts[i].absent = true;
    capture_close();
    run("");
    assert_true(value_of("gflops") > 0);
    assert_true(isnan(value_of("ratio_default_vs_best")));
    assert_true(isnan(captured("ratio_vs_onednn")->hi));
    assert_true(isnan(value_of("gflops_best_baseline")));
    assert_string_equal(captured("ratio_default_vs_best")->why,
                        "no baseline computed this shape");
    memcpy(scripts, kept, sizeof(kept));
}

TEST(what_is_not_possible_is_skipped_with_a_reason)
{
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

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The ratio and its interval, from the times of the rounds; of less than six rounds that is
 * the median, the smallest and the largest. */
static void check_ratio(const char *name, const char *ours, const char *theirs)
{
    double ratio[8];
    int n = length_of(ours);

    assert_in_range(n, 2, 5);
    for (int i = 0; i < n; i++)
        ratio[i] = series_at(theirs, i) / series_at(ours, i);
    qsort(ratio, (size_t)n, sizeof(ratio[0]), by_size);
    assert_true(near(value_of(name), (ratio[(n - 1) / 2] + ratio[n / 2]) / 2));
    assert_true(near(captured(name)->lo, ratio[0]));
    assert_true(near(captured(name)->hi, ratio[n - 1]));
}

/* Every run of the i-th entry takes 1 + i ms, and more or less from run to run. */
static int scripted(void *arg, int alternative, struct measure_trial *t)
{
    int *n = arg;

    t->seconds = 1e-3 * (1 + alternative) * (1 + 0.1 * ((*n)++ % 5));
    return OK;
}

/* Regression: `fig07` compared the cost model's schedule, not a tuned one, with tuned
 * libraries. */
TEST(ratios_follow_from_the_recorded_rounds)
{
    char best[32];
    int n = 0;

    measure_script(scripted, &n);
    run(", \"tune_s\": 0.05");
    measure_script(NULL, NULL);
    snprintf(best, sizeof(best), "s_%s", note_of("best_baseline"));
    check_ratio("ratio_tuned_vs_best", "s_tuned", best);
    check_ratio("ratio_default_vs_best", "s_default", best);
    check_ratio("ratio_tuned_vs_default", "s_tuned", "s_default");
    check_ratio("ratio_vs_onednn", "s_tuned", "s_onednn");
    check_ratio("ratio_vs_blis", "s_tuned", "s_blis");
    check_ratio("ratio_again", "s_tuned", "s_again");
    assert_true(near(
        value_of("detectable_frac"),
        stats_detectable_frac(captured("ratio_again")->lo, captured("ratio_again")->hi)));
    assert_true(isnan(captured("ratio_vs_openblas")->lo));
    assert_string_equal(captured("ratio_vs_openblas")->why,
                        "openblas was not built: no library");
}

TEST(without_tuning_there_is_no_tuned_number)
{
    run("");
    assert_true(isnan(value_of("gflops_tuned")) && isnan(value_of("tuning_s")));
    assert_true(isnan(value_of("ratio_tuned_vs_best")));
    assert_string_equal(captured("ratio_tuned_vs_best")->why, "no time for tuning");
    assert_true(value_of("gflops") == value_of("gflops_default"));
    run(", \"tune_s\": 0.05");
    assert_true(value_of("gflops") == value_of("gflops_tuned"));
    assert_true(value_of("tuning_s") > 0);
}

TEST(few_rows_are_named)
{
    run("");
    assert_non_null(strstr(note_of("particulars"), "few rows: a micro-kernel takes "));
}

TEST(nothing_stays_open)
{
    capture_close();
    assert_int_equal(baselines_open, 0);
    capture_close();
    assert_true(shapes_made > 0);
}

TEST_GROUP(NULL, capture_end);
