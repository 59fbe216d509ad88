/* The trust check: what can be counted here is right, what cannot says why. */
#include <math.h>

#include "characterize/counters/trust.h"
#include "tests/counters/shadow.h"
#include "tests/support/test.h"

static struct counters_trust rows[COUNTERS_TRUST_MAX];
static int n_rows;

static int run(void **state)
{
    (void)state;
    return counters_trust_run(rows, &n_rows);
}

static const struct counters_trust *row(const char *event)
{
    for (int i = 0; i < n_rows; i++)
        if (strcmp(rows[i].event, event) == 0)
            return &rows[i];
    fail_msg("no row %s", event);
    return NULL;
}

TEST(every_row_is_judged)
{
    assert_true(n_rows >= 10);
    for (int i = 0; i < n_rows; i++) {
        const struct counters_trust *t = &rows[i];

        assert_true(isnan(t->counted) == (t->verdict == COUNTERS_UNAVAILABLE));
        assert_true((t->why[0] != 0) == (t->verdict == COUNTERS_UNAVAILABLE));
        assert_true(t->verdict == COUNTERS_UNAVAILABLE ||
                    (t->verdict == COUNTERS_TRUSTED) ==
                        (t->ratio >= t->low && t->ratio <= t->high));
    }
}

TEST(software_is_right)
{
    assert_int_equal(row("trust.steps")->verdict, COUNTERS_TRUSTED);
    assert_true(row("trust.steps")->counted == 1000003);
    if (row("page-faults")->verdict == COUNTERS_UNAVAILABLE)
        test_skip("%s", row("page-faults")->why);
    assert_true(row("page-faults")->ratio >= 1 &&
                row("page-faults")->ratio < test_shadow());
}

/* PAPI reads the same counter of the kernel. */
TEST(papi_is_right_about_software)
{
    const struct counters_trust *t = row("perf::PAGE-FAULTS");

    assert_string_equal(t->provider, "papi");
    if (t->verdict == COUNTERS_UNAVAILABLE)
        test_skip("%s", t->why);
    assert_true(t->ratio >= 1 && t->ratio < test_shadow());
}

TEST(reported_to_records)
{
    json_t *j;
    int sum;

    assert_ok(counters_trust_json(rows, n_rows, &j));
    sum = (int)(json_integer_value(json_object_get(j, "n_trusted")) +
                json_integer_value(json_object_get(j, "n_off")) +
                json_integer_value(json_object_get(j, "n_unavailable")));
    assert_int_equal(sum, n_rows);
    assert_int_equal(json_array_size(json_object_get(j, "events")), n_rows);
    json_decref(j);
}

TEST_GROUP(run, NULL);
