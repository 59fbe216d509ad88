/* How far the logits of two engines are from exact ones, one held against the other. */
#include <math.h>

#include "experiments/study/support/logit_error.h"
#include "tests/support/test.h"

TEST_GROUP(NULL, NULL);

TEST(a_ratio_is_of_the_prompts_that_both_answered)
{
    struct study_logit_errors a = study_logit_unknown, b = a;
    double lo, hi;

    assert_true(isnan(study_logit_error_ratio(&a, &b, 4, &lo, &hi)));
    a.prompt[0] = 0.2, b.prompt[0] = 0.1;
    assert_float_equal(study_logit_error_ratio(&a, &b, 4, &lo, &hi), 2, 1e-12);
    assert_true(isnan(lo) && isnan(hi));
    a.prompt[1] = 9;
    b.prompt[2] = 9;
    a.prompt[3] = 0.8, b.prompt[3] = 0.1;
    assert_float_equal(study_logit_error_ratio(&a, &b, 4, &lo, &hi), 4, 1e-12);
    /* The logarithms are 1 and 3 times log 2; t of one degree of freedom is 12.706. */
    assert_float_equal(lo, 4 * exp(-12.706 * log(2)), 1e-3);
    assert_float_equal(log(hi / 4), 12.706 * log(2), 1e-3);
    assert_float_equal(study_logit_error_ratio(&a, &b, 3, &lo, &hi), 2, 1e-12);
}
