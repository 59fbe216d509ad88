/* slicing: its numbers are those of the model by hand, and what cannot be had has its reason. */
#include "hetero/policy.h"
#include "tests/study/capture.h"

extern const struct study study_slicing;

static void near(const char *name, double want)
{
    if (!(fabs(value_of(name) / want - 1) < 1e-9))
        fail_msg("%s: %.12g, expected %.12g", name, value_of(name), want);
}

/* Testbed A in INT4, LLaMA-2-70B: nothing stays but attention, one slice: the CPU computes all. */
TEST(by_hand)
{
    double w = 8192.0 * 28672, attention = 2.0 * 8192 * 9216, head = 32000.0 * 8192;
    double launch = 4.4e-5, start = 4.7e-6, rate = 8.1e-13;
    double away = 80 * 3 * (1.1e-5 + w * 5.4e-12);
    double accel =
        80 * (launch + start + attention * rate) + launch + start + head * rate;

    assert_ok(capture_run(&study_slicing, "{\"n_units\": 1, \"no_gg\": true}"));
    near("step_ms", 1e3 * (away + accel));
    assert_true(value_of("cg_frac") == 0 && value_of("gg_frac") == 0);
    near("speedup_fixed_0", 1);
    assert_true(isnan(value_of("speedup_tokens")) && isnan(value_of("accel_tok_frac")));
    /* Dense: Fiddler places experts. */
    assert_true(isnan(value_of("speedup_fiddler")));
    assert_true(fabs(value_of("greedy_gap_frac")) < 1e-12);
}

/* The CPU's factor acts on the CPU only, the link's limit on the link only. */
TEST(options_act)
{
    double before;

    assert_ok(capture_run(&study_slicing, "{\"n_units\": 1, \"no_gg\": true}"));
    before = value_of("step_ms");
    assert_ok(capture_run(&study_slicing,
                          "{\"n_units\": 1, \"no_gg\": true, \"bus_limit\": true}"));
    near("step_ms", before); /* nothing is sent */
    assert_ok(capture_run(&study_slicing,
                          "{\"n_units\": 1, \"no_gg\": true, \"cpu_factor\": 4}"));
    assert_true(value_of("step_ms") < before * 4 && value_of("cg_frac") == 1);
    /* As printed, the link starts though nothing is sent, which the CPU hides in all 80 layers. */
    assert_ok(capture_run(&study_slicing,
                          "{\"n_units\": 1, \"no_gg\": true, \"as_printed\": true}"));
    near("step_ms", before);
    assert_ok(
        capture_run(&study_slicing, "{\"model\": \"llama-2-13b\", \"budget_gb\": 100}"));
    before = value_of("step_ms");
    assert_ok(capture_run(&study_slicing,
                          "{\"model\": \"llama-2-13b\", \"budget_gb\": 100, "
                          "\"as_printed\": true}"));
    assert_true(value_of("step_ms") > before); /* but not where the accelerator has all */
    assert_ok(capture_run(&study_slicing, "{\"n_units\": 1, \"no_gg\": true}"));
    before = value_of("step_ms");
    assert_ok(capture_run(&study_slicing, "{\"type\": \"fp16\", \"budget_gb\": 40}"));
    assert_true(value_of("step_ms") > 2 * before / 3);
}

TEST(what_cannot_be_had_has_a_reason)
{
    int rc = capture_run(&study_slicing, "{\"budget_gb\": 1}");

    assert_int_equal(rc, ERR_NOTFOUND);
    assert_non_null(strstr(err_msg(), "hold attention"));
    assert_int_equal(capture_run(&study_slicing, "{\"model\": \"mixtral-8x7b\"}"), OK);
    assert_true(value_of("speedup_fiddler") > 1 && isnan(value_of("greedy_gap_frac")));
}

TEST_GROUP(NULL, capture_end);
