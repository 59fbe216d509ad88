/* A series of means: every value counts once, in order, however many there are. */
#include <math.h>

#include "base/series.h"
#include "tests/support/test.h"

TEST(short_ones_are_kept)
{
    struct series s = {0};

    for (int i = 0; i < SERIES_POINTS; i++) {
        series_add(&s, i);
        assert_int_equal(s.n, i + 1);
        assert_true(s.mean[i] == i);
    }
    assert_int_equal(s.each, 1);
}

/* Point i of values 0, 1, 2 ... is the mean of each * i to each * (i + 1) - 1. */
TEST(long_ones_are_means)
{
    struct series s = {0};
    int64_t n = 0;

    for (; n < 5000; n++) {
        series_add(&s, (double)n);
        assert_int_equal((s.n - 1) * s.each + s.in_last, n + 1);
        assert_true(s.n <= SERIES_POINTS && s.in_last <= s.each);
    }
    assert_int_equal(s.each, 32);
    for (int i = 0; i < s.n; i++) {
        int64_t count = i == s.n - 1 ? s.in_last : s.each;

        assert_true(fabs(s.mean[i] - ((double)(i * s.each) + (double)(count - 1) / 2)) <
                    1e-9 * 5000);
    }
}
