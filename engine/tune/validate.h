/* tune/validate.h - is what was found better than no tuning at all?
 *
 * A search takes the fastest of many short measurements, and so now and then one that was
 * lucky. The last word has a comparison with the default schedule, both in turn.
 *   Threads: the bench's one. */
#ifndef TUNE_VALIDATE_H
#define TUNE_VALIDATE_H

#include "tune/measure.h"

/* The shape by kern_schedule_default() and by *found: `rounds` runs of each, more where
 * they are short, since a disturbance outlasts a few. Where the default was the
 * faster one *found becomes it (*lost). t[0] is the default's time, t[1] that of what was
 * found; the two being one schedule, nothing is run and both are 0. As
 * tune_bench_shape() and tune_compare(). */
MUST int tune_validate(struct tune_bench *b, const struct tune_shape *s, int n_threads,
                       int rounds, struct kern_schedule *found,
                       struct measure_report t[2], bool *lost);

#endif
