/* What moving keys and values of a tiny model adds: a slow link is seen as the form says. */
#include "tests/study/capture.h"
#include "tests/support/leftovers.h"
#include "tests/support/tiny_model.h"

extern const struct study study_kv_transfer;

TEST_GROUP(NULL, capture_end);

static int run_study(const char *more)
{
    return capture_run(&study_kv_transfer,
                       "{\"model\": \"%s\", \"prompts\": \"8 32\", \"rounds\": 3%s}",
                       tiny_model(KERN_BF16), more);
}

/* The link sleeps for x for each of the three layers, after the request was submitted and before
 * its second token, however busy the machine is; without it the request takes some 18 c.
 * Regression: `visible` was judged, from which the time of a later token is taken. */
TEST(a_slow_link)
{
    double x, c, link_ms;

    assert_ok(run_study(", \"x_over_c\": 40"));
    x = value_of("x_layer");
    c = value_of("c_layer");
    assert_true(fabs(x / c - 40) < 1e-9);
    link_ms = (1 - 1e-6) * 3 * x;
    assert_true(series_at("e2e_serial_ms", 1) > link_ms);
    assert_true(series_at("e2e_layer_ms", 1) > link_ms);
    assert_true(fabs(series_at("x_ms", 1) - x) < 1e-9);
    assert_true(series_at("prompt_tok", 1) == 32);
    assert_true(fabs(series_at("form_serial_ms", 1) - value_of("alpha_serial") - 3 * x) <
                1e-6 * x);
    left_no_child();
}

TEST(every_transport_without_a_limit)
{
    assert_ok(run_study(", \"transport\": \"map\", \"checksums\": false"));
    assert_true(isnan(value_of("link_speed")));
    assert_true(series_at("first_alone_ms", 1) > 0 && series_at("e2e_layer_ms", 1) > 0);
}

TEST(refusals)
{
    assert_err(capture_run(&study_kv_transfer, "{}"), ERR_ARG, "study.model");
    assert_err(run_study(", \"transport\": \"smh\""), ERR_NOTFOUND, "smh");
}
