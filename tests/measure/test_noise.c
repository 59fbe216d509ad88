/* Programmed readings, and exactly the warnings that they must give. */
#include "tests/support/test.h"

#include <math.h>

#include "base/json.h"
#include "base/log.h"
#include "measure/noise.h"

/* Regression: a card measured while compilers ran had `warnings: []` and a third of the
 * peak, and bounded later runs. */

#define S INT64_C(1000000000)

/* Ten quiet seconds on two CPUs: 12 s of our own, 0.3 s of others. */
static struct measure_noise quiet(void)
{
    const struct cpu_usage zero = {.n_cpus = 2,
                                   .load_1min = 1,
                                   .governor = "performance",
                                   .mhz = 2500,
                                   .nominal_mhz = 2500};
    struct measure_noise n = {.before = zero, .after = zero};

    n.after.wall_ns = 10 * S;
    n.after.busy_ns = 12 * S + 3 * S / 10;
    n.after.self_ns = 12 * S;
    return n;
}

static struct measure_noise_finding only(const struct measure_noise *n, const char *code)
{
    struct measure_noise_finding f[MEASURE_NOISE_FINDINGS];

    assert_int_equal(measure_noise_findings(n, f), 1);
    assert_string_equal(f[0].code, code);
    return f[0];
}

static void none(const struct measure_noise *n)
{
    struct measure_noise_finding f[MEASURE_NOISE_FINDINGS];

    assert_int_equal(measure_noise_findings(n, f), 0);
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) < 1e-9))
        fail_msg("got %g, wanted %g", got, wanted);
}

TEST(a_quiet_machine)
{
    struct measure_noise n = quiet();

    none(&n);
    near(measure_noise_lost_cpus(&n), 0.03);
}

TEST(others_run)
{
    struct measure_noise n = quiet();
    struct measure_noise_finding f;

    n.after.busy_ns = 18 * S;
    f = only(&n, "noisy_machine");
    near(f.observed, 0.6);
    near(f.threshold, MEASURE_NOISE_OTHER_CPUS);
    assert_string_equal(f.text, "other programs used 0.60 of the 2 CPUs of this process");
    n.after.busy_ns = 13 * S; /* at the threshold is not above it */
    none(&n);
    n.after.busy_ns = 11 * S; /* ticks are rounded: never less than nothing */
    none(&n);
    near(measure_noise_lost_cpus(&n), 0);
    /* 40 ms of 100 are beyond the threshold, but may be ticks that were rounded */
    n.after.wall_ns = S / 10;
    n.after.self_ns = 100000000;
    n.after.busy_ns = 140000000;
    none(&n);
}

TEST(the_host_steals)
{
    struct measure_noise n = quiet();
    struct measure_noise_finding f;

    n.after.steal_ns = 76 * S / 10;
    f = only(&n, "steal");
    near(f.observed, 0.76);
    near(f.threshold, MEASURE_NOISE_STEAL_CPUS);
    assert_string_equal(f.text,
                        "the host ran others on 0.76 of the 2 CPUs of this process");
    near(measure_noise_lost_cpus(&n), 0.79);
}

TEST(it_is_throttled)
{
    struct measure_noise n = quiet();
    struct measure_noise_finding f;

    n.after.n_throttled = 7;
    n.after.throttled_ns = S;
    f = only(&n, "throttled");
    near(f.observed, 0.1);
    near(f.threshold, MEASURE_NOISE_THROTTLED_FRAC);
    assert_non_null(strstr(f.text, "quota of the control group stopped"));
    n = quiet();
    n.after.n_hot = 3;
    f = only(&n, "throttled");
    near(f.observed, 3);
    near(f.threshold, 0);
    assert_string_equal(f.text, "heat slowed the CPUs down 3 times");
    n = quiet();
    n.after.mhz = 1800;
    f = only(&n, "throttled");
    near(f.observed, 1800);
    near(f.threshold, 2250);
    assert_string_equal(
        f.text, "the CPUs ran at 1800 MHz, and 2500 are nominal (governor: performance)");
    n.after.mhz = 2300;
    none(&n);
}

/* What cannot be read is neither noise nor 0. */
TEST(unknown_is_unknown)
{
    struct measure_noise n = quiet();
    json_t *j;

    n.before.busy_ns = n.before.steal_ns = n.after.throttled_ns = -1;
    n.after.mhz = n.after.nominal_mhz = n.after.load_1min = NAN;
    n.after.governor[0] = '\0';
    none(&n);
    assert_true(isnan(measure_noise_lost_cpus(&n)));
    j = measure_noise_json(&n);
    for (size_t i = 0; i < 7; i++) {
        static const char *const keys[] = {"other_cpu_ns",  "steal_ns",    "throttled_ns",
                                           "frequency_mhz", "nominal_mhz", "governor",
                                           "load_avg_1min"};

        if (!json_is_null(json_object_get(j, keys[i])))
            fail_msg("%s is not null", keys[i]);
    }
    assert_int_equal(json_integer_value(json_object_get(j, "cpu_ns")), 12 * S);
    json_decref(j);
}

/* All at once: the warnings as data, and the record of what they are from. */
TEST(all_are_warned_of)
{
    struct measure_noise n = quiet();
    struct log_warning w[4];
    json_t *j;

    n.after.busy_ns = 18 * S;
    n.after.steal_ns = S;
    n.after.n_hot = 1;
    n.after.n_preempted = 77;
    while (log_warnings_take(w, 4) > 0)
        ;
    measure_noise_warn(&n, "rate=2");
    assert_int_equal(log_warnings_take(w, 4), 3);
    assert_string_equal(w[0].code, "noisy_machine");
    assert_string_equal(w[1].code, "steal");
    assert_string_equal(w[2].code, "throttled");
    near(w[0].observed, 0.6);
    near(w[0].threshold, 0.1);
    assert_string_equal(w[0].text,
                        "rate=2: other programs used 0.60 of the 2 CPUs of this "
                        "process (threshold 0.1)");
    j = measure_noise_json(&n);
    assert_int_equal(json_integer_value(json_object_get(j, "other_cpu_ns")), 6 * S);
    assert_int_equal(json_integer_value(json_object_get(j, "steal_ns")), S);
    assert_int_equal(json_integer_value(json_object_get(j, "n_preempted")), 77);
    assert_int_equal(json_integer_value(json_object_get(j, "interval_ns")), 10 * S);
    assert_string_equal(json_string_value(json_object_get(j, "governor")), "performance");
    json_decref(j);
}

TEST(memory_runs_out)
{
    struct measure_noise n = quiet();
    json_t *j = NULL;

    for (long k = 0; !j; k++) {
        err_clear();
        mem_fail_after(k, 0);
        j = measure_noise_json(&n);
        mem_fail_after(-1, 0);
        assert_true(j || strstr(err_msg(), "out of memory"));
    }
    json_decref(j);
}
