/* experiments/study/support/stressors.h - threads that take a known share of the time of CPUs that
 * others compute on, and nothing else, or a known part of their caches as well.
 *
 * One thread is pinned to each CPU. It sleeps for most of a period and runs for the rest, at the
 * same moments on all CPUs: a team that meets at barriers would otherwise lose the time of each
 * stressor, not their common share. While a stressor runs, the program of that CPU does not: it
 * neither computes nor reads. So time taken in this way takes every resource in proportion, except
 * for what caches hold, and a stressor that reads in its slices takes no bandwidth from anybody.
 *
 * STRESSORS_SPIN reads the clock. STRESSORS_TOUCH reads lines of a buffer in turn, as many as its
 * slice has time for, and so displaces what caches held. STRESSORS_EVICT reads a file piece by
 * piece and drops each piece from the page cache. What they took is measured.
 * Threads: one caller. */
#ifndef STUDY_STRESSORS_H
#define STUDY_STRESSORS_H

#include <stddef.h>

#include "base/err.h"

enum study_stressors_mode {
    STUDY_STRESSORS_OFF,
    STUDY_STRESSORS_SPIN,
    STUDY_STRESSORS_TOUCH,
    STUDY_STRESSORS_EVICT
};

struct study_stressors_opts {
    const int *cpus; /* [n] */
    int n;
    double share;    /* of the time; below 1 */
    double period_s; /* not of the kernel's tick: /proc/stat would count all or none */
    size_t footprint_bytes; /* of the buffers of all stressors together */
    int fd;                 /* of the file that is evicted; lent */
};

/* What all stressors together took since the mode was set. */
struct study_stressors_dose {
    double cpu_s;      /* by the threads' clocks; NaN: they have none */
    double read_bytes; /* of the buffers or the file */
    double disk_bytes; /* of the file, that the page cache did not have */
};

struct study_stressors;
/* ERR_NOMEM: no thread or no memory. *out: study_stressors_close(). */
MUST int study_stressors_open(struct study_stressors **out,
                              const struct study_stressors_opts *o);
void study_stressors_close(struct study_stressors **h); /* twice is fine */
/* Returns when no stressor runs in the mode before. */
void study_stressors_set(struct study_stressors *h, enum study_stressors_mode mode);
/* The same with another share, from 0 (they wake and sleep) to 1 (they do not sleep), and with a
 * part of the buffers. */
void study_stressors_begin(struct study_stressors *h, enum study_stressors_mode mode,
                           double share, size_t footprint_bytes);
void study_stressors_dose(const struct study_stressors *h,
                          struct study_stressors_dose *out);
/* Different bytes that all stressors together read in a slice, the mean since the mode was set; 0
 * without a slice. */
double study_stressors_touched_bytes(const struct study_stressors *h);

#endif
