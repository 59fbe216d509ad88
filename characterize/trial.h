/* characterize/trial.h - what all probes share: time a body on the team, repeat
 * alternatives by measure/compare.h, report them with their intervals.
 * Private to characterize/. Threads: those of probe.h. */
#ifndef CHARACTERIZE_TRIAL_H
#define CHARACTERIZE_TRIAL_H

#include "characterize/probe.h"
#include "measure/compare.h"
#include "par/team.h"

/* The time budget decides between these two: thirty-one leave an interval worth
 * printing. */
#define PROBE_TRIALS_MIN 3
#define PROBE_TRIALS_MAX 31

typedef void (*probe_body)(void *arg, int id, int n_threads);

/* One trial: from the first thread's start to the last one's end; all start at a barrier.
 * It is disturbed if a thread lost its CPU meanwhile, since the time then includes other
 * programs' work. */
struct measure_trial probe_time(struct par_team *team, int n_threads, probe_body body,
                                void *arg);

/* Time n alternatives in turn for budget_s. *out: measure_close(), NULL on error. As
 * measure_compare(). */
MUST int probe_measure(struct measure **out, int n, double budget_s, measure_fn fn,
                       void *arg);

/* Append the fastest of n alternatives, the first being `first`: `amount` per second, in
 * units of 1e9. */
MUST int probe_report_rate(struct probe_ctx *c, const char *name, const char *unit,
                           int n_threads, const struct measure *m, int first, int n,
                           double amount);
/* Append alternative i: nanoseconds an operation of a trial of n_ops. */
MUST int probe_report_ns(struct probe_ctx *c, const char *name, int n_threads,
                         const struct measure *m, int i, double n_ops);
/* Append one with its interval; where estimate or interval is NaN: unavailable, with the
 * reason. */
MUST int probe_report(struct probe_ctx *c, const char *name, const char *unit,
                      int n_threads, const struct measure_report *r);
/* Append a value that is not available, with the reason. */
MUST int probe_report_none(struct probe_ctx *c, const char *name, const char *unit,
                           int n_threads, const char *why);

/* The thread counts worth a measurement, ascending: 1, 2, 3, 4, 6, 8, 12 ... and n_max.
 */
#define PROBE_COUNTS_MAX 32
int probe_thread_counts(int n_max, int *counts);

/* The CPU that thread `id` of the team is pinned to; the thread's number where it is not
 * pinned. */
int probe_cpu(const struct probe_ctx *c, int id);

/* Memory for n threads: several times the caches that they share, in n equal parts of a
 * multiple of `step` bytes, each written first by its thread. */
struct probe_buffer {
    char *p;
    size_t bytes, part_bytes;
};
MUST int probe_buffer_open(struct probe_buffer *b, const struct probe_ctx *c,
                           int n_threads, size_t step);
void probe_buffer_close(struct probe_buffer *b);

#endif
