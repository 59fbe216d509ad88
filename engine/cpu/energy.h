/* cpu/energy.h - how much energy the processor and its memory have taken, by the counters that the
 * kernel shows in /sys/class/powercap (RAPL: Intel since Sandy Bridge, AMD since Zen).
 *
 * The counters are of whole packages: what others run on them, and what they take when idle, is in
 * them. They step about once a millisecond; hypervisors mostly hide them, and kernels since 5.10
 * let only root read them.   Threads: one for each struct. */
#ifndef CPU_ENERGY_H
#define CPU_ENERGY_H

#include <stdint.h>

#include "base/err.h"

#define CPU_ENERGY_ZONES_MAX 32

/* Packages, and memory where it has a counter of its own. All zero before the first reading. */
struct cpu_energy {
    int n;
    struct cpu_energy_zone {
        char dir[64];               /* below /sys/class/powercap */
        char name[32];              /* "package-0", "dram" */
        uint64_t last_uj, range_uj; /* the counter, and where it starts over */
        double joules;              /* since the first reading */
    } zone[CPU_ENERGY_ZONES_MAX];
};

/* Read all counters; *joules is what all zones together have taken since the first reading of *e,
 * 0 at that. Read it before the counters start over twice, which takes minutes. ERR_NOTFOUND:
 * there is none, or they may not be read; the message says which, and what would help. */
MUST int cpu_energy_read(struct cpu_energy *e, double *joules);

/* Test hook: read files below `root`, which must stay valid. NULL: the real ones. */
void cpu_energy_set_root(const char *root);

#endif
