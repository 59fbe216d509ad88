/* base/clock.h - the one source of time. Threads: any. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <stddef.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t clock_ns(void);

/* Ticks of the processor's counter of constant rate: the time stamp counter of x86, cntvct of
 * Arm; 0 where there is none. The length of a tick is measured with clock_ns(). Not ordered
 * with the instructions around it, so use it for microseconds and more. */
uint64_t clock_ticks(void);

/* Return no earlier than `t_ns`; sleeps, then spins the last `spin_ns` for precision. */
void clock_sleep_until_ns(uint64_t t_ns, uint64_t spin_ns);

/* Wall clock, UTC, as "2026-01-31T23:59:59Z"; n >= 21. */
void clock_utc(char *out, size_t n);

#endif
