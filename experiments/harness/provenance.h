/* experiments/harness/provenance.h - where a result comes from: the code, and the
 * machine's state around it.
 *
 * Everything is read from this process, /proc and /sys; what cannot be read stands as
 * {"unavailable": "why"}, never as 0 or as absent. Threads: any. */
#ifndef HARNESS_PROVENANCE_H
#define HARNESS_PROVENANCE_H

#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "base/err.h"

/* {"commit", "dirty", "compiler", "flags", "arch"}. Equal for two runs of one build.
 * *out: new reference. */
MUST int provenance_json(json_t **out);

/* The machine and its settings now: CPU model and microcode, governor, frequency driver,
 * SMT, huge pages, NUMA balancing, cgroup limits, affinity, load average, steal time,
 * memory, perf_event_paranoid, kernel, C library, hwloc, HDF5 and jansson versions. *out:
 * new reference. */
MUST int env_json(json_t **out);

/* The host's name as the record keeps it. */
void env_host(char *out, size_t n);

/* What the machine did to us during a cell: take before and after. A counter that cannot
 * be read is -1. */
struct env_counters {
    int64_t steal_ns;       /* time the hypervisor ran others, all CPUs */
    int64_t throttled_ns;   /* time our cgroup was stopped by its quota */
    int64_t n_throttled;    /* periods in which that happened */
    int64_t n_preempted;    /* involuntary context switches of this process */
    int64_t n_major_faults; /* page faults that waited for a disk */
    int64_t cpu_ns;         /* user and system time of this process */
    double load_avg_1min;   /* of the whole machine; NaN if unreadable */
};
void env_counters_read(struct env_counters *c);
/* after - before as JSON; unreadable ones are null. New reference; NULL: ERR_NOMEM set.
 */
MUST json_t *env_counters_json(const struct env_counters *before,
                               const struct env_counters *after);

#endif
