#include "tests/support/test.h"

#include <math.h>

#include "plan/costs.h"

static const struct plan_costs table = {3, {2, 4, 16}, {1.0, 2.0, 5.0}};

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * want))
        fail_msg("got %.17g, wanted %.17g", got, want);
}

TEST(test_at)
{
    const struct plan_costs none = {.n = 0}, one = {1, {8}, {3.0}};

    near(plan_costs_at(&table, 1), 1);
    near(plan_costs_at(&table, 2), 1);
    near(plan_costs_at(&table, 3), 1.5);
    near(plan_costs_at(&table, 4), 2);
    near(plan_costs_at(&table, 7), 2.75);
    near(plan_costs_at(&table, 16), 5);
    near(plan_costs_at(&table, 48), 15);
    near(plan_costs_at(&one, 1), 3);
    near(plan_costs_at(&one, 16), 6);
    assert_true(isnan(plan_costs_at(&none, 1)));
}

TEST(test_most_rows)
{
    const struct plan_costs flat = {1, {1000}, {3.0}};

    assert_int_equal(plan_costs_most_rows(&table, &flat, 0, 512), 8);
    assert_int_equal(plan_costs_most_rows(&table, &flat, 0.5, 512), 14);
    assert_int_equal(plan_costs_most_rows(&table, &flat, 0, 5), 5);
    assert_int_equal(plan_costs_most_rows(&table, &table, 0, 512), 512);
    assert_int_equal(plan_costs_most_rows(&flat, &table, 0, 4), 0);
    assert_int_equal(plan_costs_most_rows(&flat, &table, 0, 8), 8);
}

TEST(test_check)
{
    static const struct {
        int i;
        int64_t rows;
        double seconds;
        const char *part;
    } rows[] = {
        {0, 0, 1, "entry 0: expected rows in [1, 65536], ascending, found 0"},
        {1, 2, 1, "entry 1: expected rows in [3, 65536], ascending, found 2"},
        {2, 65537, 1, "found 65537"},
        {2, 16, 0, "entry 2: expected seconds above 0, found 0"},
        {2, 16, -1, "found -1"},
        {2, 16, NAN, "found nan"},
        {2, 16, INFINITY, "found inf"},
    };

    assert_ok(plan_costs_check(&table, "x"));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plan_costs c = table;

        c.rows[rows[i].i] = rows[i].rows;
        c.seconds[rows[i].i] = rows[i].seconds;
        assert_err(plan_costs_check(&c, "here"), ERR_FORMAT, rows[i].part);
        assert_non_null(strstr(err_msg(), "here: step_s: "));
    }
}
