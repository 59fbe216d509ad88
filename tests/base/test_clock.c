#include "tests/support/test.h"

#include "base/clock.h"

TEST(never_backwards)
{
    uint64_t last = clock_ns();

    for (int i = 0; i < 10000; i++) {
        uint64_t now = clock_ns();
        assert_true(now >= last);
        last = now;
    }
}

/* Only "not before" is promised; how late is a measurement, not a test. */
TEST(sleeps_long_enough)
{
    static const uint64_t waits[] = {0, 1, 1000, 300000, 3000000};

    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
        for (uint64_t spin = 0; spin <= 1000000; spin += 500000) {
            uint64_t until = clock_ns() + waits[i];
            clock_sleep_until_ns(until, spin);
            assert_true(clock_ns() >= until);
        }
    clock_sleep_until_ns(0, 0); /* past: returns */
    clock_sleep_until_ns(1, UINT64_MAX);
}

/* A constant rate: twice the time is about twice the ticks, whatever else runs meanwhile. */
TEST(ticks_follow_time)
{
    double least[2], most[2]; /* ticks per ns: a moment passes between two readings */

    if (clock_ticks() == 0)
        test_skip("this processor has no counter of constant rate to read");
    for (int i = 0; i < 2; i++) {
        uint64_t before = clock_ns(), from = clock_ticks(), after = clock_ns();
        uint64_t end = after + 20000000u * (unsigned)(i + 1), ticks, ns;

        clock_sleep_until_ns(end, 0);
        ns = clock_ns();
        ticks = clock_ticks() - from;
        least[i] = (double)ticks / (double)(clock_ns() - before);
        most[i] = (double)ticks / (double)(ns - after);
    }
    assert_true(most[0] > 0.001 && least[0] < 100); /* 1 MHz ... 100 GHz */
    assert_true(most[1] > 0.5 * least[0] && least[1] < 2 * most[0]);
}

TEST(utc)
{
    char s[32], small[5] = "xxxx";

    clock_utc(s, sizeof(s));
    assert_int_equal(strlen(s), 20);
    assert_true(s[4] == '-' && s[7] == '-' && s[10] == 'T' && s[13] == ':' &&
                s[19] == 'Z');
    assert_true(strtol(s, NULL, 10) >= 2024);
    clock_utc(small, sizeof(small)); /* no room: empty, not half a date */
    assert_string_equal(small, "");
}
