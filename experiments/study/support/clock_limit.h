/* experiments/study/support/clock_limit.h - lowers the highest clock that some cores may take,
 * where the kernel lets this process (cpufreq's scaling_max_freq, which root may write).
 *
 * It is a setting of the machine, not of this process: a process that is killed meanwhile leaves
 * it lowered.   Threads: one for each struct. */
#ifndef STUDY_CLOCK_LIMIT_H
#define STUDY_CLOCK_LIMIT_H

#include <stdbool.h>

#include "cpu/cpu.h"

struct study_clock_limit {
    const char *root; /* lent */
    int cpus[CPU_MAX], n;
    long khz[CPU_MAX]; /* their limits when it was opened */
    bool lowered;
};

/* Files are read below `root`: "" for the real ones. ERR_UNSUPPORTED: a CPU has no such file, or
 * it may not be written; the message says which. */
MUST int study_clock_limit_open(struct study_clock_limit *out, const char *root,
                                const int *cpus, int n);
/* All limits become `share` of what they were; 1 restores them. ERR_IO: the kernel refuses; they
 * are then restored as far as it lets. */
MUST int study_clock_limit_set(struct study_clock_limit *l, double share);

#endif
