/* The trace of a data set: a few lengths with weights that have its totals. */
#include "tests/support/test.h"

#include <math.h>

#include "base/rng.h"
#include "plan/trace.h"

#define N 500

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * fabs(want))
        fail_msg("got %.17g, wanted %.17g", got, want);
}

static void check_points(const struct plan_points *p, double weight, double mean)
{
    double sum = 0;

    assert_in_range(p->n, 1, PLAN_POINTS_MAX);
    for (int i = 0; i < p->n; i++) {
        assert_true(p->v[i].weight > 0);
        assert_true(i == 0 || p->v[i].tok > p->v[i - 1].tok);
        sum += p->v[i].weight;
    }
    near(sum, weight);
    near(plan_points_mean(p), mean);
}

/* Random lengths against plain sums; merged points keep them. */
TEST(totals_are_those_of_the_data_set)
{
    int64_t prompt[N], output[N];
    struct rng r;

    rng_init(&r, test_seed(), "trace");
    for (int trial = 0; trial < 200; trial++) {
        struct plan_lengths l = {prompt, output, 1 + (int64_t)rng_below(&r, N)};
        double prompts = 0, contexts = 0, tokens = 0;
        struct plan_trace t;

        for (int64_t i = 0; i < l.n; i++) {
            prompt[i] = 1 + (int64_t)rng_below(&r, trial % 2 ? 3 : 3000);
            output[i] = 1 + (int64_t)rng_below(&r, trial % 3 ? 4 : 900);
            prompts += (double)prompt[i];
            tokens += (double)output[i];
            for (int64_t k = 1; k <= output[i]; k++)
                contexts += (double)(prompt[i] + k);
        }
        assert_ok(plan_trace_of(&t, &l, 0));
        check_points(&t.prompts, (double)l.n, prompts / (double)l.n);
        check_points(&t.contexts, tokens, contexts / tokens);
        near(t.mean_output, tokens / (double)l.n);
        for (int n = PLAN_POINTS_MAX; n >= 0; n--) {
            plan_points_merge(&t.contexts, n);
            assert_true(t.contexts.n <= (n ? n : 1));
            check_points(&t.contexts, tokens, contexts / tokens);
        }
    }
}

/* Parts of equal size, each its mean: long prompts are not lost among short ones. */
TEST(parts_are_equal)
{
    const int64_t prompt[] = {9, 1, 1000, 2}, output[] = {1, 1, 1, 1};
    struct plan_trace t;

    assert_ok(plan_trace_of(&t, &(struct plan_lengths){prompt, output, 4}, 0));
    assert_int_equal(t.prompts.n, 4);
    assert_true(t.prompts.v[3].tok == 1000 && t.prompts.v[0].tok == 1);
    plan_points_merge(&t.prompts, 2);
    assert_true(t.prompts.v[0].tok == 1.5 && t.prompts.v[1].tok == 504.5);
    assert_true(t.prompts.v[0].weight == 2);
    assert_int_equal(plan_point_tok(&t.prompts.v[0]), 2);
}

/* Requests that an engine would not serve whole are as long as it serves. */
TEST(long_requests_are_shortened)
{
    const int64_t prompt[] = {10, 500, 90}, output[] = {5, 7, 100};
    struct plan_trace t;

    assert_ok(plan_trace_of(&t, &(struct plan_lengths){prompt, output, 3}, 100));
    assert_true(t.prompts.v[2].tok == 99); /* one token of output still fits */
    near(t.mean_output, (5 + 1 + 10) / 3.0);
    assert_true(t.contexts.v[t.contexts.n - 1].tok <= 100);
}

TEST(request_takes_prompt_and_output)
{
    const int64_t prompt[] = {10}, output[] = {30};
    struct plan_trace t;

    assert_ok(plan_trace_of(&t, &(struct plan_lengths){prompt, output, 1}, 0));
    near(plan_trace_s(&t, 1, 2, 0.1), 2 + 3);
    near(plan_trace_s(&t, 4, 2, 0.1), 2 + 0.75);
}

TEST(refusals)
{
    const int64_t prompt[] = {10, 0}, output[] = {1, 3};
    struct plan_lengths l = {prompt, output, 0};
    struct plan_trace t;

    assert_err(plan_trace_of(&t, &l, 0), ERR_ARG, "found none");
    l.n = 2;
    assert_err(plan_trace_of(&t, &l, 0), ERR_ARG, "request 1");
    l.n = 1;
    mem_fail_after(0, 1);
    assert_int_equal(plan_trace_of(&t, &l, 0), ERR_NOMEM);
    mem_fail_after(-1, 0);
}
