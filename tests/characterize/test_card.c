#include "tests/support/test.h"

#include <math.h>

#include "base/json.h"
#include "base/log.h"
#include "characterize/probe.h"
#include "measure/card.h"

static void near(double got, double wanted)
{
    if (isnan(wanted) ? !isnan(got) : !(fabs(got - wanted) < 1e-9))
        fail_msg("got %g, wanted %g", got, wanted);
}

/* ---- measuring and keeping ---- */

static int n_measured;

static void count_measurements(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    n_measured += strstr(line, "measuring this machine") != NULL;
}

static json_t *get(const char *dir, int force, int expect_measured)
{
    json_t *card;

    n_measured = 0;
    assert_ok(machine_card_get(&card, dir, force, 0.05));
    assert_int_equal(n_measured, expect_measured);
    return card;
}

static void check_measured(const json_t *card)
{
    const json_t *row, *values = json_object_get(card, "values");
    int n_available = 0;
    size_t i;

    json_array_foreach((json_t *)values, i, row)
    {
        const json_t *estimate = json_object_get(row, "estimate");
        const char *why = json_string_value(json_object_get(row, "why"));

        assert_non_null(why);
        if (json_is_null(estimate)) {
            assert_true(why[0] != '\0');
            continue;
        }
        n_available++;
        assert_string_equal(why, "");
        /* of noise there may be none */
        if (strncmp(json_string_value(json_object_get(row, "name")), "noise_", 6) == 0)
            continue;
        assert_true(json_number_value(estimate) > 0);
        assert_true(json_integer_value(json_object_get(row, "n_trials")) >= 3);
    }
    assert_true(n_available >= 4); /* read, copy, triad, plain C */
    assert_true(measure_card_read_gbps(card, 1) > 0);
    assert_true(measure_card_peak_gflops(card, "f32", "exact", 1) > 0);
}

static void measured_once(void **state)
{
    json_t *a, *b;
    char dir[600];

    (void)state;
    log_set_sink(count_measurements, NULL);
    snprintf(dir, sizeof(dir), "%s/not/yet/there", test_dir());
    a = get(dir, 0, 1);
    check_measured(a);
    b = get(dir, 0, 0);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    json_decref(get(dir, 1, 1)); /* force */
    log_set_sink(NULL, NULL);
}

/* A card measured with fewer instruction sets neither replaces the other nor stands for it:
 * it would bound what it has never seen. */
static void masked_card(void **state)
{
    const char *before = getenv(CPU_ISA_ENV);
    char dir[600], level[32];
    json_t *all, *masked, *again;

    (void)state;
    if (!cpu_isa_detected())
        test_skip("nothing can be hidden on a machine that has plain C only");
    snprintf(level, sizeof(level), "%s", before ? before : "auto");
    snprintf(dir, sizeof(dir), "%s/masked", test_dir());
    log_set_sink(count_measurements, NULL);
    all = get(dir, 0, 1);
    setenv(CPU_ISA_ENV, "ref", 1);
    masked = get(dir, 0, 1);
    again = get(dir, 0, 0);
    assert_true(json_equal(masked, again));
    json_decref(again);
    setenv(CPU_ISA_ENV, level, 1);
    again = get(dir, 0, 0);
    assert_true(json_equal(all, again));
    if (!before)
        unsetenv(CPU_ISA_ENV);
    log_set_sink(NULL, NULL);
    json_decref(all);
    json_decref(masked);
    json_decref(again);
}

/* The full card is written next to the quick one and holds all that it holds. */
static void full_card(void **state)
{
    json_t *quick, *full, *again;
    const char *why;
    char dir[600];

    (void)state;
    snprintf(dir, sizeof(dir), "%s/full", test_dir());
    assert_ok(machine_card_get(&quick, dir, 0, 0.05));
    assert_ok(machine_card_full_get(&full, dir, 0, 0.05));
    assert_ok(machine_card_full_get(&again, dir, 0, 0.05));
    assert_true(json_equal(full, again));
    json_decref(again);
    assert_ok(machine_card_get(&again, dir, 0, 0.05));
    assert_true(json_equal(quick, again));
    json_decref(again);
    check_measured(full);
    assert_true(json_array_size(json_object_get(full, "values")) >
                json_array_size(json_object_get(quick, "values")));
    assert_true(measure_card_value(full, "latency_ns_small_16KiB", 1, &why) > 0);
    near(measure_card_value(quick, "latency_ns_small_16KiB", 1, &why), NAN);
    assert_non_null(strstr(why, "no such value"));
    json_decref(quick);
    json_decref(full);
}

/* A kept card that is not one of this machine is measured again, and a warning says why. */
static void kept_card_is_refused(void **state)
{
    struct log_warning warning;
    char dir[600], path[700];
    json_t *card, *row;

    (void)state;
    log_set_sink(count_measurements, NULL);
    snprintf(dir, sizeof(dir), "%s/kept", test_dir());
    assert_ok(measure_card_path(path, sizeof(path), dir, ""));
    card = get(dir, 0, 1);
    row = json_array_get(json_object_get(card, "values"), 0);
    json_object_set_new(row, "lo", json_real(0.5));
    assert_ok(json_write_file(card, path));
    json_decref(card);
    log_warnings_take(&warning, 1);
    json_decref(get(dir, 0, 1));
    assert_int_equal(log_warnings_take(&warning, 1), 1);
    assert_string_equal(warning.code, "machine_card_refused");
    assert_non_null(strstr(warning.text, "changed after it was measured"));
    assert_non_null(strstr(warning.text, "measuring again"));
    json_decref(get(dir, 0, 0));
    test_write(path, "{\"values\":", 10);
    json_decref(get(dir, 0, 1));
    assert_int_equal(log_warnings_take(&warning, 1), 1);
    json_decref(get(dir, 0, 0));
    assert_int_equal(log_warnings_take(&warning, 1), 0);
    log_set_sink(NULL, NULL);
}

/* The card cannot be kept: it is still the truth. */
static void nowhere_to_keep(void **state)
{
    char file[600], dir[700];
    json_t *card;

    (void)state;
    log_set_sink(count_measurements, NULL);
    snprintf(file, sizeof(file), "%s/file", test_dir());
    test_write(file, "", 0);
    snprintf(dir, sizeof(dir), "%s/below", file);
    card = get(dir, 0, 1);
    check_measured(card);
    json_decref(card);
    log_set_sink(NULL, NULL);
}

static void memory_runs_out(void **state)
{
    json_t *card;

    (void)state;
    log_set_sink(count_measurements, NULL);
    for (long n = 0; n < 4; n++) {
        int rc;

        mem_fail_after(n, 0);
        rc = machine_card_get(&card, test_dir(), 1, 0.01);
        mem_fail_after(-1, 0);
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(card);
    }
    log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_once),   cmocka_unit_test(masked_card),
        cmocka_unit_test(full_card),       cmocka_unit_test(kept_card_is_refused),
        cmocka_unit_test(nowhere_to_keep), cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
