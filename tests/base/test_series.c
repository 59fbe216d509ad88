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
static void assert_means(const struct series *s)
{
    for (int i = 0; i < s->n; i++) {
        int64_t count = i == s->n - 1 ? s->in_last : s->each;

        assert_true(fabs(s->mean[i] - ((double)(i * s->each) + (double)(count - 1) / 2)) <
                    5e-6);
    }
}

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
    assert_means(&s);
}

/* Also when merged further, with a last point of fewer values than the others. */
TEST(merged_ones_are_means)
{
    for (int n = 1; n <= 70; n++)
        for (int most = 1; most <= 9; most++) {
            struct series s = {0};

            for (int i = 0; i < n; i++)
                series_add(&s, i);
            series_merge(&s, most);
            assert_true(s.n >= 1 && s.n <= most && (s.each == 1 || s.n > most / 2));
            assert_int_equal((s.n - 1) * s.each + s.in_last, n);
            assert_means(&s);
        }
}
