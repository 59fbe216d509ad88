/* par/spin.h - one wait for another thread: spin until a time budget is used up, reading the
 * clock only now and then, and report how long the wait took.   Threads: one owner. */
#ifndef PAR_SPIN_H
#define PAR_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "cpu/cpu.h"

/* Number of pauses between two readings of the clock; 32 take about 1 us. */
#define SPIN_BATCH 32

struct spin {
    uint64_t start_ns; /* 0: the clock has not been read yet */
    int n;
};

/* Spin once more; false: the budget is used up. */
static inline bool spin_on(struct spin *s, uint64_t spin_ns)
{
    uint64_t now;

    cpu_relax();
    if (++s->n % SPIN_BATCH != 0)
        return true;
    now = clock_ns();
    if (!s->start_ns)
        s->start_ns = now;
    return now - s->start_ns < spin_ns;
}

/* How long the wait has taken so far, sleep included; 0 below about 1 us. */
static inline uint64_t spin_waited_ns(const struct spin *s)
{
    return s->start_ns ? clock_ns() - s->start_ns : 0;
}

#endif
