/* speculation: the tokens are those of greedy decoding whatever the draft proposes, acceptances are
 * those that were asked for, and what is predicted follows from the times of steps. */
#include <math.h>

#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_speculation;

TEST_GROUP(NULL, capture_end);

static double named(const char *what, int percent)
{
    char name[32];

    snprintf(name, sizeof(name), "%s_a%d", what, percent);
    return value_of(name);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) < 1e-9 * fabs(want)))
        fail_msg("got %.17g, wanted %.17g", got, want);
}

static void run(int draft_tok, double draft_cost)
{
    static const int percents[] = {0, 20, 40, 60, 80, 100};
    double cost, last = -1;

    assert_ok(capture_run(&study_speculation,
                          "{\"model\": \"%s\", \"draft_tok\": %d, \"draft_cost\": %g, "
                          "\"n_prompt_tok\": 5, \"n_output_tok\": 60, \"rounds\": 3, "
                          "\"deterministic\": true}",
                          tiny_model(KERN_BF16), draft_tok, draft_cost));
    assert_value("n_different", 0);
    cost = value_of("step_cost") + draft_cost * draft_tok;
    for (int i = 0; i < 6; i++) {
        double a = named("acceptance", percents[i]), tok = 0;

        for (int k = 0; k <= draft_tok; k++)
            tok += pow(a, k);
        near(named("predicted", percents[i]), tok / cost);
        assert_true(named("speedup", percents[i]) > 0);
        assert_true(a >= last && fabs(a - percents[i] / 100.0) < 0.3);
        last = a;
    }
    assert_true(named("acceptance", 0) == 0 && named("acceptance", 100) == 1);
    near(named("predicted", 100), (draft_tok + 1) / cost);
}

/* The acceptance at which it pays is the one at which the formula gives 1. */
TEST(steps_of_several_rows)
{
    double at, tok = 0;

    run(1, 0);
    run(4, 0);
    at = value_of("breakeven_predicted") / 100;
    for (int k = 0; k <= 4; k++)
        tok += pow(at, k);
    if (value_of("step_cost") > 1.01 && value_of("step_cost") < 4.9)
        assert_true(fabs(tok / value_of("step_cost") - 1) < 1e-4);
}

/* A draft token that costs two steps pays never, and that is said. */
TEST(a_dear_draft)
{
    run(3, 2);
    assert_true(isnan(value_of("breakeven_predicted")));
    assert_true(named("predicted", 100) < 1);
}

TEST(no_model)
{
    assert_int_not_equal(capture_run(&study_speculation, "{\"model\": \"none.gguf\"}"),
                         OK);
}
