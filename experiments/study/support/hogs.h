/* experiments/study/support/hogs.h - threads that take a known share of the time of CPUs that
 * others compute on, and nothing else, or a known part of their caches as well.
 *
 * One thread is pinned to each CPU. It sleeps for most of a period and runs for the rest, at the
 * same moments on all CPUs: a team that meets at barriers would otherwise lose the time of each
 * hog, not their common share. While a hog runs, the program of that CPU does not: it
 * neither computes nor reads. So time taken in this way takes every resource in proportion, except
 * for what caches hold, and a hog that reads in its slices takes no bandwidth from anybody.
 *
 * HOGS_SPIN looks at the clock. HOGS_TOUCH reads lines of a buffer in turn, as many as its slice
 * has time for, and so displaces what caches held.   Threads: one caller. */
#ifndef STUDY_HOGS_H
#define STUDY_HOGS_H

#include <stddef.h>

#include "base/err.h"

enum study_hogs_mode { STUDY_HOGS_OFF, STUDY_HOGS_SPIN, STUDY_HOGS_TOUCH };

struct study_hogs_opts {
    const int *cpus; /* [n] */
    int n;
    double share, period_s; /* of the time; below 1 */
    size_t footprint_bytes; /* of the buffers of all hogs together */
};

struct study_hogs;
/* ERR_NOMEM: no thread or no memory. *out: study_hogs_close(). */
MUST int study_hogs_open(struct study_hogs **out, const struct study_hogs_opts *o);
void study_hogs_close(struct study_hogs **h); /* twice is fine */
/* Returns when no hog runs in the mode before. */
void study_hogs_set(struct study_hogs *h, enum study_hogs_mode mode);
/* Different bytes that all hogs together read in a slice, the mean since the mode was set; 0
 * without a slice. */
double study_hogs_touched_bytes(const struct study_hogs *h);

#endif
