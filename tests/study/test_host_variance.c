/* host_variance: in the published records' own groups, planted components are found again within a
 * tenth; where numbers are exchanged, kinds have no share; shares of the numbers themselves add
 * up. */
#include "tests/study/capture.h"

extern const struct study study_host_variance;

static const char *const numbers[] = {"card", "times", "ratios"};
static const char *const levels[] = {"kind", "machine", "time", "order", "rest"};

TEST(planted_components_are_found_in_the_groups_of_the_records)
{
    for (int i = 0; i < 3; i++) {
        assert_ok(
            capture_run(&study_host_variance,
                        "{\"numbers\": \"%s\", \"values\": \"planted\", \"draws\": 100}",
                        numbers[i]));
        if (!(value_of("planted_error_frac") < 0.1))
            fail_msg("%s: %g", numbers[i], value_of("planted_error_frac"));
    }
}

TEST(exchanged_numbers_have_no_kinds)
{
    for (int i = 0; i < 3; i++) {
        double published;

        assert_ok(capture_run(&study_host_variance, "{\"numbers\": \"%s\"}", numbers[i]));
        published = value_of("sd_kind_frac");
        assert_ok(
            capture_run(&study_host_variance,
                        "{\"numbers\": \"%s\", \"values\": \"shuffled\", \"draws\": 30}",
                        numbers[i]));
        assert_true(value_of("sd_kind_frac") < published / 2);
        assert_true(value_of("share_kind") < 0.1);
    }
}

TEST(shares_add_up_and_smaller_effects_need_more)
{
    for (int i = 0; i < 3; i++) {
        double sum = 0;

        assert_ok(capture_run(&study_host_variance, "{\"numbers\": \"%s\"}", numbers[i]));
        for (int l = 0; l < 5; l++) {
            char name[32];

            snprintf(name, sizeof(name), "share_%s", levels[l]);
            sum += isnan(value_of(name)) ? 0 : value_of(name);
        }
        assert_true(fabs(sum - 1) < 1e-9);
        assert_true(value_of("hosts_2") >= value_of("hosts_5"));
        assert_true(value_of("hosts_5") >= value_of("hosts_10"));
        assert_true(value_of("hosts_10") >= value_of("hosts_27"));
        assert_true(value_of("hosts_27") >= value_of("runs_27") &&
                    value_of("runs_27") >= 2);
        assert_true(value_of("n_series") > 10 &&
                    value_of("n_values") > 2 * value_of("n_series"));
        assert_true(value_of("n_claims_one_kind") <= value_of("n_claims"));
    }
}

/* A card of a kind of host and a day in the folder of an experiment. */
static void put_card(const char *home, const char *kind, const char *experiment,
                     const char *day, double gbps)
{
    char path[1024];
    FILE *f;

    snprintf(path, sizeof(path), "mkdir -p %s/results/published/%s/%s", home, kind,
             experiment);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof(path), "%s/results/published/%s/%s/latest.json", home, kind,
             experiment);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(
        f,
        "{\"file\": \"x.h5\", \"utc\": \"2026-01-01\", \"machine_card\": {\"checksum\": "
        "\"%s%s\", "
        "\"measured_utc\": \"%sT00:00:00Z\", \"values\": [{\"name\": \"read_gbps\", "
        "\"n_threads\": 1, \"n_trials\": 9, \"estimate\": %.17g, \"lo\": %.17g, \"hi\": "
        "%.17g}, "
        "{\"name\": \"peak\", \"n_threads\": 1, \"n_trials\": 0, \"estimate\": null}]}}",
        kind, day, day, gbps, gbps, gbps);
    assert_int_equal(fclose(f), 0);
}

/* Two kinds that differ by a factor of exp(2), each the same on two days. */
TEST(cards_by_hand)
{
    char home[512], path[600];
    FILE *f;

    snprintf(home, sizeof(home), "%s/home", test_dir());
    put_card(home, "a", "x", "2026-01-01", 1);
    put_card(home, "a", "y", "2026-01-02", 1);
    put_card(home, "b", "x", "2026-01-01", exp(2));
    put_card(home, "b", "z", "2026-01-02", exp(2));
    put_card(home, "b", "w", "2026-01-02", exp(2)); /* the same card again */
    snprintf(path, sizeof(path), "%s/results/claims.json", home);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(
        "{\"claims\": [{\"name\": \"both\", \"experiment\": \"x\"}, {\"name\": \"one\", "
        "\"experiment\": \"y\"}, {\"name\": \"none\", \"experiment\": \"v\"}, {\"name\": "
        "\"not\"}]}",
        f);
    assert_int_equal(fclose(f), 0);
    setenv("SANDWICH_HOME", home, 1);
    assert_ok(capture_run(&study_host_variance, "{}"));
    unsetenv("SANDWICH_HOME");
    assert_true(fabs(value_of("sd_kind_frac") - sqrt(2)) < 1e-9); /* of 0 and 2 */
    assert_true(value_of("sd_machine_frac") == 0 && value_of("sd_rest_frac") == 0);
    assert_true(isnan(value_of("sd_time_frac"))); /* no machine has two cards */
    assert_true(value_of("n_values") == 4 && value_of("n_series") == 1);
    assert_true(value_of("n_kinds") == 2 && value_of("n_machines") == 4);
    assert_true(value_of("n_claims") == 2 && value_of("n_claims_one_kind") == 1);
    assert_string_equal(json_string_value(json_array_get(
                            json_object_get(capture.notes, "claims_on_one_kind"), 0)),
                        "one");
}

TEST(without_records_there_is_nothing_to_divide)
{
    char home[512], path[1024];

    snprintf(home, sizeof(home), "%s/empty", test_dir());
    snprintf(path, sizeof(path), "mkdir -p %s/results", home);
    assert_int_equal(system(path), 0);
    setenv("SANDWICH_HOME", home, 1);
    assert_int_equal(capture_run(&study_host_variance, "{}"), ERR_NOTFOUND);
    unsetenv("SANDWICH_HOME");
    assert_non_null(strstr(err_msg(), "results/published"));
}
TEST_GROUP(NULL, capture_end);
