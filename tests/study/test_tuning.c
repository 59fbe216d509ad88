/* The studies of tuning, by themselves on tiny products. */
#include "tests/study/capture.h"
#include "tune/policy.h"

extern const struct study study_policies, study_tuning;

#define TINY                                                                             \
    "\"matrix\": \"x 64x64\", \"cache_mb\": 1, \"budget_s\": 0.05, \"trials\": 4, "      \
    "\"rounds\": 3"

static double geomean(const char *series)
{
    const struct captured_series *s = series_of(series);
    double product = 1;

    for (size_t i = 0; i < s->n; i++)
        product *= s->v[i];
    return pow(product, 1 / (double)s->n);
}

static void every_policy_has_its_columns(void **state)
{
    char name[64];

    (void)state;
    for (int i = 0; tune_policies[i]; i++) {
        snprintf(name, sizeof(name), "regret_%s", tune_policies[i]->name);
        if (!study_metric_find(&study_policies, name))
            fail_msg("%s", err_msg());
    }
}

static void regret_is_against_the_oracle(void **state)
{
    (void)state;
    assert_ok(capture_run(&study_policies,
                          "{" TINY
                          ", \"ms\": \"1 5\", \"policies\": \"oracle default\"}"));
    assert_true(value_of("regret_oracle") == 0);
    assert_true(fabs(value_of("regret_default") -
                     (ratio_geomean("s_default", "s_oracle") - 1)) < 1e-9);
    assert_true(value_of("measurements_oracle") > 0);
    assert_true(value_of("tuning_s_oracle") > 0);
    assert_true(value_of("measurements_default") == 0);
    assert_true(value_of("tuning_s_default") == 0);
    assert_true(value_of("n_shapes") == 2);
    assert_int_equal(length_of("m"), 2);
    assert_int_equal(length_of("s_oracle"), 2);
    assert_int_equal(json_array_size(json_object_get(
                         json_object_get(capture.notes, "schedules"), "oracle")),
                     2);
}

static void without_the_oracle_there_is_no_regret(void **state)
{
    (void)state;
    assert_ok(capture_run(&study_policies,
                          "{" TINY ", \"ms\": \"3\", \"policies\": \"default\"}"));
    assert_true(isnan(value_of("regret_default")));
    assert_string_equal(captured("regret_default")->why, "the oracle was not asked");
    assert_true(value_of("gflops_default") > 0);
}

static void unknown_policies_are_refused(void **state)
{
    (void)state;
    assert_err(capture_run(&study_policies, "{" TINY ", \"policies\": \"oracl\"}"),
               ERR_NOTFOUND, "did you mean \"oracle\"");
    assert_err(capture_run(&study_tuning, "{" TINY ", \"policy\": \"sandwhich\"}"),
               ERR_NOTFOUND, "did you mean \"sandwich\"");
}

static void tuning_is_charged(void **state)
{
    (void)state;
    assert_ok(capture_run(&study_tuning, "{" TINY ", \"ms\": \"1 6\"}"));
    assert_true(value_of("n_measurements") > 0);
    assert_true(value_of("n_runs") > value_of("n_measurements"));
    assert_true(value_of("tuning_s") > 0);
    assert_true(value_of("tuning_wall_s") >= value_of("tuning_s"));
    assert_int_equal(length_of("gflops_of_m"), 2);
    assert_value("gflops", geomean("gflops_of_m"));
    assert_value("gflops_default", geomean("gflops_default_of_m"));
    assert_value("speedup", ratio_geomean("gflops_of_m", "gflops_default_of_m"));
    assert_int_equal(json_array_size(json_object_get(capture.notes, "schedules")), 2);
    assert_string_equal(note_of("type"), "f32");
    assert_ok(capture_run(&study_tuning,
                          "{" TINY ", \"ms\": \"1 6\", \"policy\": \"default\"}"));
    assert_true(value_of("n_measurements") == 0);
    assert_true(value_of("tuning_s") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_has_its_columns),
        cmocka_unit_test(regret_is_against_the_oracle),
        cmocka_unit_test(without_the_oracle_there_is_no_regret),
        cmocka_unit_test(unknown_policies_are_refused),
        cmocka_unit_test(tuning_is_charged),
    };

    return cmocka_run_group_tests_name("study/tuning", tests, NULL, capture_end);
}
