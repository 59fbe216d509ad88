/* measure/noise.h - what else the machine did during a measurement, and whether to trust it.
 *
 * Every run, probe and benchmark is read before and after (cpu/usage.h); the difference is
 * recorded, and what exceeds a threshold becomes a warning with the observed value: in the
 * record, on the terminal, in the footer of the figure. The thresholds come from the quick
 * machine card, measured on a virtual machine of two CPUs. With up to 0.06 CPUs used by
 * others and 0.045 stolen its values were those of the quiet machine; compilers (1.1 to 1.3
 * CPUs) slowed single trials, but not the estimates; two busy loops (1.6 CPUs) made a third
 * of the peaks wrong by 10 to 40 %.   Threads: any, distinct objects. */
#ifndef MEASURE_NOISE_H
#define MEASURE_NOISE_H

#include <stdbool.h>
#include <jansson.h>

#include "base/err.h"
#include "cpu/usage.h"

/* In CPUs: time over wall time, all CPUs together. One disturbed thread delays a team. */
#define MEASURE_NOISE_OTHER_CPUS 0.1
#define MEASURE_NOISE_STEAL_CPUS 0.05
/* Share of the wall time that a quota may stop us. */
#define MEASURE_NOISE_THROTTLED_FRAC 0.01
/* Share of the nominal frequency. */
#define MEASURE_NOISE_SLOW_FRAC 0.9

struct measure_noise {
    int cpus[CPU_MAX], n_cpus; /* of this process when it began */
    struct cpu_usage before, after;
};
/* Directly before and after what is measured. ERR_NOMEM. */
MUST int measure_noise_begin(struct measure_noise *n);
MUST int measure_noise_end(struct measure_noise *n);

/* A quantity above its threshold: at most one for each code. */
struct measure_noise_finding {
    const char *code; /* "noisy_machine", "steal", "throttled" */
    double observed, threshold;
    char text[160];
};
#define MEASURE_NOISE_FINDINGS 3
int measure_noise_findings(const struct measure_noise *n,
                           struct measure_noise_finding out[MEASURE_NOISE_FINDINGS]);
/* Is it the code of such a finding? */
bool measure_noise_is(const char *code);
/* Each of them as log_warning(), with `what` was measured in front. */
void measure_noise_warn(const struct measure_noise *n, const char *what);

/* CPUs that other programs and other virtual machines had; NaN: unknown. */
double measure_noise_lost_cpus(const struct measure_noise *n);

/* The differences, and the state at the end: {"steal_ns", "other_cpu_ns", "n_preempted",
 * "load_avg_1min", "governor", ...}; what is unknown is null. New reference; NULL:
 * ERR_NOMEM set. */
MUST json_t *measure_noise_json(const struct measure_noise *n);

#endif
