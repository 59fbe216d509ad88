/* The studies of tuning, by themselves on tiny products. */
#include "tests/study/capture.h"
#include "tune/policy.h"

extern const struct study study_policies;

#define TINY                                                                             \
    "\"matrix\": \"x 64x64\", \"cache_mb\": 1, \"budget_s\": 0.05, \"trials\": 4, "      \
    "\"rounds\": 3"

TEST(every_policy_has_its_columns)
{
    char name[64];

    for (int i = 0; tune_policies[i]; i++) {
        snprintf(name, sizeof(name), "regret_%s", tune_policies[i]->name);
        if (!study_metric_find(&study_policies, name))
            fail_msg("%s", err_msg());
    }
}

TEST(regret_is_against_the_oracle)
{
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

/* Every run of the i-th of several schedules takes 1 + i ms and 1 % more each time. */
struct script {
    int n;
};

static int scripted(void *arg, int alternative, struct measure_trial *t)
{
    struct script *s = arg;

    t->seconds = 1e-3 * (1 + alternative) * pow(1.01, s->n++ % 7);
    return OK;
}

/* By their definition, from the times in the record. */
TEST(regret_and_speed_follow_from_the_recorded_times)
{
    static const char *const policies[] = {"roller", "ansor", "oracle", "default"};
    struct script script = {0};
    char name[64];

    measure_script(scripted, &script);
    assert_ok(capture_run(&study_policies,
                          "{" TINY
                          ", \"ms\": \"1 5 9\", \"policies\": \"roller ansor oracle "
                          "default\"}"));
    measure_script(NULL, NULL);
    for (int k = 0; k < 4; k++) {
        double log_regret = 0, log_speed = 0;

        snprintf(name, sizeof(name), "s_%s", policies[k]);
        assert_int_equal(length_of(name), 3);
        for (int i = 0; i < 3; i++) {
            double s = series_at(name, i);

            /* the k-th alternative of the closing comparison */
            assert_true(s >= 1e-3 * (1 + k) && s <= 1e-3 * (1 + k) * 1.07);
            log_regret += log(s / series_at("s_oracle", i)) / 3;
            log_speed += log(series_at("s_ansor", i) / s) / 3;
        }
        snprintf(name, sizeof(name), "regret_%s", policies[k]);
        assert_true(fabs(value_of(name) - expm1(log_regret)) < 1e-12);
        snprintf(name, sizeof(name), "vs_ansor_%s", policies[k]);
        assert_true(fabs(value_of(name) - exp(log_speed)) < 1e-12);
    }
    assert_true(value_of("regret_oracle") == 0 && value_of("vs_ansor_ansor") == 1);
}

TEST(without_the_oracle_there_is_no_regret)
{
    assert_ok(capture_run(&study_policies,
                          "{" TINY ", \"ms\": \"3\", \"policies\": \"default\"}"));
    assert_true(isnan(value_of("regret_default")));
    assert_string_equal(captured("regret_default")->why, "the oracle was not asked");
    assert_string_equal(captured("vs_ansor_default")->why, "ansor was not asked");
    assert_true(value_of("gflops_default") > 0);
}

TEST(unknown_policies_are_refused)
{
    assert_err(capture_run(&study_policies, "{" TINY ", \"policies\": \"oracl\"}"),
               ERR_NOTFOUND, "did you mean \"oracle\"");
}

TEST(tuning_is_charged)
{
    const double flop = 2.0 * 64 * 64;

    assert_ok(capture_run(&study_policies,
                          "{" TINY
                          ", \"ms\": \"1 6\", \"policies\": \"sandwich default\"}"));
    assert_true(value_of("measurements_sandwich") > 0);
    assert_true(value_of("runs_sandwich") > value_of("measurements_sandwich"));
    assert_true(value_of("tuning_s_sandwich") > 0);
    assert_true(value_of("tuning_wall_s_sandwich") >= value_of("tuning_s_sandwich"));
    assert_value("gflops_sandwich", 1e-9 * sqrt(flop / series_at("s_sandwich", 0) * 6 *
                                                flop / series_at("s_sandwich", 1)));
    assert_value("speedup_sandwich", ratio_geomean("s_default", "s_sandwich"));
    assert_true(value_of("speedup_default") == 1);
    assert_int_equal(json_array_size(json_object_get(
                         json_object_get(capture.notes, "schedules"), "sandwich")),
                     2);
    assert_string_equal(note_of("type"), "f32");
}

TEST_GROUP(NULL, capture_end);
