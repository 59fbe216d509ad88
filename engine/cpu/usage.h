/* cpu/usage.h - what the CPUs of this process have done so far, for whom, and how fast: two
 * readings, before and after a measurement, show what else the machine did meanwhile.
 *
 * Everything is from /proc, /sys and the control group. What a machine does not report is unknown
 * (-1, NaN or ""), never 0. A reading visits each process once, which takes some 10 us a process:
 * keep it out of timed code.   Threads: any. */
#ifndef CPU_USAGE_H
#define CPU_USAGE_H

#include <stdint.h>

#include "base/err.h"
#include "cpu/cpu.h"

/* All times are since a moment that is the same for both readings. */
struct cpu_usage {
    int64_t wall_ns;
    int n_cpus;             /* CPUs that were asked for; the two below are theirs */
    int64_t busy_ns;        /* time in which they ran any program or the kernel */
    int64_t steal_ns;       /* time in which the hypervisor ran others on them */
    int64_t self_ns;        /* CPU time of this process and of those that it started */
    int64_t n_preempted;    /* involuntary context switches of this process */
    int64_t n_major_faults; /* page faults of this process that waited for a disk */
    int64_t throttled_ns;   /* time our cgroup was stopped by its quota */
    int64_t n_throttled;    /* periods in which that happened */
    int64_t n_hot;          /* times that a core slowed down because of its temperature */
    double load_1min;       /* load average of the whole machine */
    double mhz;             /* highest frequency of those CPUs now */
    double nominal_mhz;     /* frequency that the processor is sold for */
    char governor[32];      /* of the first CPU's frequency */
    char numa_balancing[8]; /* "0": the kernel does not move pages */
};
/* The CPUs that the threads of this process may run on, ascending; returns how many of at
 * most CPU_MAX. A thread that is pinned later does not belong to fewer: take them once for
 * both readings. */
int cpu_usage_cpus(int cpus[CPU_MAX]);
/* ERR_NOMEM. */
MUST int cpu_usage_get(struct cpu_usage *out, const int *cpus, int n_cpus);
/* Test hook: read the files of /proc and /sys below `root`, which must stay valid. NULL: the
 * real ones. Preemptions and faults stay those of this process. */
void cpu_usage_set_root(const char *root);

#endif
