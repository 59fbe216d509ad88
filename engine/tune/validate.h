/* tune/validate.h - checks that a tuned schedule is faster than the default one.
 *
 * A search takes the fastest of many short measurements, which may be a lucky one. So the
 * result is compared with the default schedule once more, both in turn.
 *   Threads: the bench's one. */
#ifndef TUNE_VALIDATE_H
#define TUNE_VALIDATE_H

#include "tune/measure.h"

/* Time kern_schedule_default() and *found for the shape: `rounds` runs of each, more where
 * they are short, since a disturbance outlasts a few. Where the default is faster, *found
 * becomes the default and *lost is set. t[0] is the time of the default, t[1] that of
 * *found. Where both are the same schedule nothing is run and both are 0. Errors are those
 * of tune_bench_shape() and tune_compare(). */
MUST int tune_validate(struct tune_bench *b, const struct tune_shape *s, int n_threads,
                       int rounds, struct kern_schedule *found,
                       struct measure_report t[2], bool *lost);

#endif
