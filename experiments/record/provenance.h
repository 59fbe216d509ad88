/* experiments/record/provenance.h - where a result comes from: the code, and the
 * machine's state around it.
 *
 * Everything is read from this process, /proc and /sys; what cannot be read stands as
 * {"unavailable": "why"}, never as 0 or as absent. Threads: any. */
#ifndef RECORD_PROVENANCE_H
#define RECORD_PROVENANCE_H

#include <stddef.h>
#include <jansson.h>

#include "base/err.h"

/* {"version", "commit", "dirty", "compiler", "flags", "arch"}. Equal for two runs of one build.
 * New reference. */
json_t *provenance_json(void);

/* The machine and its settings now: CPU model and microcode, governor, frequency driver,
 * SMT, huge pages, NUMA balancing, cgroup limits, affinity, load average, memory,
 * perf_event_paranoid, kernel, C library, hwloc, HDF5 and jansson versions.
 * New reference. */
json_t *env_json(void);

/* The host's name as the record keeps it. */
void env_host(char *out, size_t n);

#endif
