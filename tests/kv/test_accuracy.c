/* The four accuracies of predictions: by hand, at the bounds, and where there is nothing to
 * judge. */
#include <math.h>

#include "kv/accuracy.h"
#include "tests/support/test.h"

static void same(double got, double want)
{
    if (!(fabs(got - want) < 1e-12))
        fail_msg("%.17g, expected %.17g", got, want);
}

TEST(by_hand)
{
    const struct kv_outcome q[] = {
        /* in its bucket, predicted 10 % too much */
        {.predicted_tok = 110,
         .prompt_tok = 10,
         .output_tok = 100,
         .bucket_tok = {64, 128},
         .of_total = true,
         .first_tok = 128,
         .last_tok = 128},
        /* in the bucket below: safe, and not in its own; predicted twice what it was */
        {.predicted_tok = 100,
         .prompt_tok = 10,
         .output_tok = 50,
         .bucket_tok = {64, 128},
         .of_total = true,
         .first_tok = 128,
         .last_tok = 128},
        /* outgrew its bucket */
        {.predicted_tok = 40,
         .prompt_tok = 30,
         .output_tok = 200,
         .bucket_tok = {0, 64},
         .of_total = true,
         .first_tok = 64,
         .last_tok = 512},
        /* the large bucket, by the output alone */
        {.predicted_tok = 300,
         .prompt_tok = 100,
         .output_tok = 300,
         .bucket_tok = {128, 512},
         .first_tok = 512,
         .last_tok = 512},
        /* none */
        {.predicted_tok = 0.5,
         .prompt_tok = 1,
         .output_tok = 1,
         .first_tok = 2,
         .last_tok = 2},
    };
    struct kv_accuracy a;

    assert_ok(kv_accuracy(&a, q, 5, 512));
    same(a.log_mae, (log(1.1) + log(2) + log(5) + 0 + 0) / 5);
    same(a.within_frac, 3 / 5.0);
    same(a.bucket_frac, 2 / 4.0);
    same(a.safe_frac, 3 / 4.0);
    same(a.overflow_frac, 1 / 5.0);
    same(a.large_frac, 1 / 5.0);
    same(a.utilization_frac, (110 + 60 + 230 + 400 + 2) / (128 + 128 + 512 + 512 + 2.0));
    /* of ten pairs two are the other way: 40 tokens were to be 200 */
    same(a.kendall_tau, (8 - 2) / 10.0);
}

TEST(at_the_bounds)
{
    const struct kv_bounds b = {
        .n = 2, .of_total = true, .align_tok = 16, .tok = {64, 128}};
    const struct kv_need needs[] = {{.prompt_tok = 60, .gen_tok = 4},
                                    {.prompt_tok = 60, .gen_tok = 5},
                                    {.prompt_tok = 60, .gen_tok = 69},
                                    {.prompt_tok = 1, .gen_tok = 1, .large = true}};
    const int64_t want[][2] = {{0, 64}, {64, 128}, {128, 512}, {128, 512}};
    struct kv_accuracy a;

    for (int i = 0; i < 4; i++) {
        struct kv_outcome q = {.predicted_tok = 9, .first_tok = 512, .last_tok = 512};

        kv_outcome_bucket(&q, &b, &needs[i], 512);
        assert_true(q.of_total);
        assert_int_equal(q.bucket_tok[0], want[i][0]);
        assert_int_equal(q.bucket_tok[1], want[i][1]);
        for (int k = -1; k <= 1; k++) { /* one below, at and above each bound */
            for (int side = 0; side < 2; side++) {
                int64_t total = want[i][side] + k;

                if (total < 2)
                    continue;
                q.prompt_tok = 1;
                q.output_tok = total - 1;
                assert_ok(kv_accuracy(&a, &q, 1, 512));
                same(a.safe_frac, total <= want[i][1]);
                same(a.bucket_frac, total > want[i][0] && total <= want[i][1]);
            }
        }
    }
}

TEST(nothing_is_nan)
{
    const struct kv_outcome same_twice[] = {{.predicted_tok = 5, .output_tok = 1},
                                            {.predicted_tok = 5, .output_tok = 9}};
    struct kv_accuracy a;

    assert_ok(kv_accuracy(&a, NULL, 0, 512));
    assert_true(isnan(a.log_mae) && isnan(a.within_frac) && isnan(a.kendall_tau) &&
                isnan(a.bucket_frac) && isnan(a.safe_frac) && isnan(a.utilization_frac));
    assert_ok(kv_accuracy(&a, same_twice, 2, 512));
    assert_true(isnan(a.kendall_tau) && isnan(a.bucket_frac));
    mem_fail_after(0, 1);
    assert_int_equal(kv_accuracy(&a, same_twice, 2, 512), ERR_NOMEM);
    mem_fail_after(-1, 0);
}
