/* par/spin.h - the time budget of one wait: spin until it is used up, reading the clock only
 * now and then.   Threads: one owner. */
#ifndef PAR_SPIN_H
#define PAR_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "cpu/cpu.h"

/* Number of pauses between two readings of the clock; 32 take about 1 us. */
#define SPIN_BATCH 32

struct spin {
    uint64_t end_ns; /* 0: the clock has not been read yet */
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
    if (!s->end_ns)
        s->end_ns = now + spin_ns;
    return now < s->end_ns;
}

#endif
