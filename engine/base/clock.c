#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return 0;
#endif
}

static void spin_hint(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void clock_sleep_until_ns(uint64_t t_ns, uint64_t spin_ns)
{
    uint64_t wake_ns = t_ns > spin_ns ? t_ns - spin_ns : 0;
    struct timespec t = {.tv_sec = (time_t)(wake_ns / 1000000000u),
                         .tv_nsec = (long)(wake_ns % 1000000000u)};

    if (wake_ns > clock_ns())
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
            ;
    while (clock_ns() < t_ns)
        spin_hint();
}

void clock_utc(char *out, size_t n)
{
    time_t now = time(NULL);
    struct tm tm;

    gmtime_r(&now, &tm);
    if (strftime(out, n, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0 && n > 0)
        out[0] = 0;
}
