/* A cell during which something else used the machine is measured again. What else uses this
 * machine does not count here: the script says what does. */
#include "tests/run/script_study.h"

#include "experiments/record/head.h"
#include "measure/noise.h"

#define SPEEDS                                                                           \
    "\"study\": {\"name\": \"script\", \"m\": [1, 2, 3], \"noise\": 0.1}, "              \
    "\"cost\": {\"minutes\": %g}, \"evidence\": \"%s\", \"headline\": [{\"name\": "      \
    "\"sum\", \"metric\": \"speed\", "                                                   \
    "\"over\": \"sum\"}]"

static int
    n_noisy; /* of the next cells and trials with requests, those that are disturbed */

void __wrap_measure_noise_warn(const struct measure_noise *n, const char *what);
void __wrap_measure_noise_warn(const struct measure_noise *n, const char *what)
{
    (void)n;
    if (n_noisy > 0 && n_noisy--)
        log_warning("steal", 0.2, 0.05, "%s: the host ran others", what);
}

static double stated_min = 1; /* how long the job takes, by its own words */

static void begin(int n_retries, uint32_t disturbed)
{
    retries = n_retries;
    disturbed_runs = disturbed;
    n_runs = 0;
}

static void run_speeds(const char *name, const char *evidence, struct ran *r)
{
    char job[600];

    snprintf(job, sizeof(job), SPEEDS, stated_min, evidence);
    run(name, job, r);
}

/* What speed the n-th run reports. */
static double speed_of(int m, int n)
{
    return m * exp(0.1 * noise_of(n - 1));
}

static bool is_noisy(const struct ran *r)
{
    json_t *head;
    bool noisy;

    assert_ok(export_head(&head, r->outcome.path));
    assert_null(json_object_get(head, "fault"));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(head, "cells"), "done")), 3);
    noisy = export_is_noisy(head);
    json_decref(head);
    return noisy;
}

TEST(the_later_attempt_counts)
{
    json_t *all, *cells;
    struct ran r;

    begin(2, 1u << 2 | 1u << 3); /* two attempts at the second cell */
    run_speeds("again", "measured_small", &r);
    assert_int_equal(n_runs, 5);
    assert_int_equal(r.outcome.n_done, 3);
    assert_float_equal(value(&r, "sum"), speed_of(1, 1) + speed_of(2, 4) + speed_of(3, 5),
                       1e-9);
    assert_false(is_noisy(&r));
    all = fixture_exported(r.outcome.path); /* each attempt is in the record */
    cells = json_object_get(all, "cells");
    assert_int_equal(json_array_size(cells), 5);
    for (size_t i = 0; i < 5; i++) {
        const json_t *a = json_object_get(json_array_get(cells, i), "attributes");

        assert_int_equal(json_int_at(a, "attempt"), i < 1 || i == 4 ? 1 : i);
        assert_string_equal(json_str_at(a, "warned", ""),
                            i == 1 || i == 2 ? "steal" : "");
    }
    json_decref(all);
    ran_free(&r);
}

/* Three cells, measured `want` times in all; is the record then one of a noisy machine? */
static void check_runs(int want, bool noisy, const char *evidence, int n_retries,
                       uint32_t disturbed)
{
    struct ran r;
    char name[32];

    snprintf(name, sizeof(name), "%s%d", evidence, n_retries);
    begin(n_retries, disturbed);
    run_speeds(name, evidence, &r);
    assert_int_equal(n_runs, want);
    assert_int_equal(is_noisy(&r), noisy);
    ran_free(&r);
}

TEST(only_as_often_as_asked)
{
    check_runs(3, true, "measured_small", 0, 1u << 2);
    check_runs(4, true, "measured_small", 1, 1u << 2 | 1u << 3);
}

/* Three more attempts and a quarter of all, whatever is asked for. */
TEST(a_machine_that_is_never_quiet)
{
    check_runs(7, true, "measured_small", 100, ~0u);
}

/* A run takes at most ten times the minutes that its experiment states. */
TEST(only_while_there_is_time)
{
    stated_min = 1e-9;
    check_runs(3, true, "measured_small", 3, ~0u);
    stated_min = 0; /* it states none */
    check_runs(7, true, "measured_small", 99, ~0u);
    stated_min = 1;
}

/* Noise does not change it. */
TEST(what_is_simulated_is_not_measured_again)
{
    check_runs(3, false, "simulated", 2, ~0u);
}

/* ---- a search */

TEST(a_trial_of_a_search)
{
    static const char job[] =
        "\"system\": {\"adapter\": \"scripted\"}, \"dataset\": {\"n\": 5, "
        "\"max_prompt_tok\": 8, \"max_output_tok\": 1}, \"load\": {\"process\": "
        "\"constant\", \"rate_rps\": 50}, \"slo\": {\"ttft_ms\": 600000}, \"search\": "
        "{\"goodput\": true, \"trial_s\": 0.5, \"seeds\": 1, \"max_rps\": 50}, "
        "\"evidence\": \"measured_small\", \"headline\": [{\"name\": \"g\", \"metric\": "
        "\"goodput_rps\"}]";
    int n_first = 0;
    json_t *all, *cell, *head;
    struct ran r;
    size_t i;

    begin(1, 0);
    n_noisy = 1; /* the first trial */
    run("search", job, &r);
    assert_int_equal(n_noisy, 0);
    assert_float_equal(value(&r, "g"), 50, 1e-9);
    assert_ok(export_head(&head, r.outcome.path));
    assert_null(json_object_get(head, "fault"));
    json_decref(head);
    all = fixture_exported(r.outcome.path);
    json_array_foreach(json_object_get(all, "cells"), i, cell)
    {
        const json_t *a = json_object_get(cell, "attributes");

        if (json_object_get(a, "trial.of"))
            n_first += json_int_at(a, "trial.number") == 0;
    }
    assert_int_equal(n_first, 2);
    json_decref(all);
    ran_free(&r);
}
