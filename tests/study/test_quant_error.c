/* mnn_quant_error: what it reports is right where the answer is known. */
#include "make/make.h"
#include "tests/study/capture.h"
#include "tests/support/test.h"

extern const struct study study_mnn_quant_error;

static const char *model(void)
{
    static char path[400];
    const struct make_opts o = {.arch = "tiny-quant",
                                .type = KERN_F32,
                                .seed = 3,
                                .format = "gguf",
                                .out = path,
                                .n_threads = 1};

    if (!path[0]) {
        snprintf(path, sizeof(path), "%s/model.gguf", test_dir());
        assert_ok(make_model(&o));
    }
    return path;
}

static void run(const char *path, const char *scheme, const char *precision)
{
    assert_ok(capture_run(
        &study_mnn_quant_error,
        "{\"model\": \"%s\", \"scheme\": \"%s\", \"precision\": \"%s\", \"n_tok\": 12}",
        path, scheme, precision));
}

/* A model that is not rounded is itself. */
TEST(nothing_costs_nothing)
{
    run(model(), "none", "exact");
    assert_true(value_of("weight_error") == 0 && isnan(value_of("weight_bits")));
    assert_true(value_of("logit_error") < 1e-6 && value_of("kl_max") < 1e-9);
    assert_true(value_of("same_top_frac") == 1);
    assert_true(fabs(value_of("perplexity_ratio") - 1) < 1e-6);
    assert_true(value_of("perplexity") > 1 && value_of("perplexity") < 1e6);
}

TEST(coarser_schemes_cost_more)
{
    static const struct {
        const char *scheme;
        double bits;
    } of[] = {{"q8_0", 8.5}, {"q4_1", 5}, {"w4c", 5}};
    double last = 0;

    for (int i = 0; i < 3; i++) {
        run(model(), of[i].scheme, "exact");
        assert_true(value_of("weight_bits") == of[i].bits);
        assert_true(value_of("n_plain") == 0);
        assert_true(value_of("weight_error") > last && value_of("weight_error") < 0.3);
        assert_true(value_of("kl_max") >= value_of("kl_mean"));
        assert_true(value_of("logit_error") > 0);
        assert_int_equal(length_of("kl_each"), 12);
        last = value_of("weight_error");
    }
    run(model(), "w4c", "a8");
    assert_true(fabs(value_of("weight_error") - last) < 1e-12);
}

TEST(the_error_is_a_steps)
{
    run(model(), "q8_0", "exact");
    /* The largest of 32 normal numbers has the root mean square 2.40. A step is a 127th of
     * it, and errors are uniform within a step. */
    assert_true(fabs(value_of("weight_error") / (2.40 / 127 / sqrt(12)) - 1) < 0.05);
}

TEST(odd_rows_stay_plain)
{
    char path[400];
    const struct make_opts o = {.arch = "tiny",
                                .type = KERN_BF16,
                                .seed = 3,
                                .format = "gguf",
                                .out = path,
                                .n_threads = 1};

    snprintf(path, sizeof(path), "%s/odd.gguf", test_dir());
    assert_ok(make_model(&o));
    run(path, "q4_0", "exact");
    assert_true(value_of("n_plain") == 2 + 3 * 7); /* all of them */
    assert_true(value_of("weight_error") > 0.05 && value_of("kl_mean") > 0);
}

TEST(refusals)
{
    assert_err(capture_run(&study_mnn_quant_error, "{}"), ERR_ARG, "model");
    assert_err(capture_run(&study_mnn_quant_error, "{\"model\": \"none.gguf\"}"),
               ERR_NOTFOUND, "none.gguf");
    assert_err(capture_run(&study_mnn_quant_error,
                           "{\"model\": \"%s\", \"scheme\": \"q3\"}", model()),
               ERR_ARG, "found \"q3\"");
}

TEST_GROUP(NULL, capture_end);
