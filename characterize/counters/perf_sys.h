/* characterize/counters/perf_sys.h - the kernel as the perf_event provider sees it, and the
 * names of its events. Private to characterize/counters/; tests put a kernel of their own
 * in its place. Threads: the kernel is replaced only while no thread counts. */
#ifndef COUNTERS_PERF_SYS_H
#define COUNTERS_PERF_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <linux/perf_event.h>

#include "characterize/counters/counters.h"

struct counters_kernel {
    int (*open)(struct perf_event_attr *attr, pid_t pid, int cpu, int group);
    ssize_t (*read)(int fd, void *buf, size_t n);
    int (*ioctl)(int fd, unsigned long request);
    int (*close)(int fd);
    const char *devices;  /* "/sys/bus/event_source/devices" */
    const char *paranoid; /* "/proc/sys/kernel/perf_event_paranoid" */
};
/* NULL: the real one again. Kept, not copied. */
void counters_kernel_set(const struct counters_kernel *k);
const struct counters_kernel *counters_kernel_of(void);

/* One thing to open. cpu -1: count the calling thread; else all that this CPU's unit
 * does. */
struct counters_perf_event {
    struct perf_event_attr attr;
    int cpu;
};

/* A name stands for one of:
 *   cycles, instructions, page-faults, dTLB-load-misses ...   the kernel's generic events
 *   rUUEE                                                      a raw code of the core's PMU
 *   PMU/NAME/, PMU/TERM=VALUE,.../                             sysfs; a * in PMU is every
 *                                                              unit whose name matches
 *                                                              and that has the event
 * Units outside the cores are counted on each CPU that their cpumask names: a part each.
 * *n of at most COUNTERS_PARTS_MAX are filled. On error *v says why: ERR_NOTFOUND (no such
 * name here), ERR_FORMAT. */
MUST int counters_perf_parse(const char *name, struct counters_perf_event *out, int *n,
                             struct counters_value *v);

#endif
