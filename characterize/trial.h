/* characterize/trial.h - what every probe does alike: time a body on the team, repeat
 * alternatives in turn so that a disturbance hits all of them, report median and spread.
 * Private to characterize/. Threads: those of probe.h. */
#ifndef CHARACTERIZE_TRIAL_H
#define CHARACTERIZE_TRIAL_H

#include "characterize/probe.h"
#include "par/team.h"

/* The time budget decides between these two. Three make a median that one outlier cannot
 * move; thirty-one leave a spread worth printing. */
#define PROBE_TRIALS_MIN 3
#define PROBE_TRIALS_MAX 31

typedef void (*probe_body)(void *arg, int id, int n_threads);

/* One trial: from the first thread's start to the last one's end; all start at a barrier.
 * It is disturbed if a thread was kept from its CPU meanwhile: that measures others'
 * work. */
struct probe_time {
    double seconds;
    int disturbed;
};
struct probe_time probe_time(struct par_team *team, int n_threads, probe_body body,
                             void *arg);

/* One of several alternatives measured in turn. */
struct probe_series {
    double x[PROBE_TRIALS_MAX], disturbed[PROBE_TRIALS_MAX];
    int n, n_disturbed;
};
/* Add `amount` per second (in units of 1e9) of a trial, while there is room. */
void probe_series_add(struct probe_series *s, double amount, const struct probe_time *t);

/* The same for what takes time: nanoseconds an operation of a trial of n of them. */
void probe_series_add_ns(struct probe_series *s, double n_ops,
                         const struct probe_time *t);

/* May another round of trials begin? The time ends at `end_ns`. */
int probe_more(const struct probe_series *s, int n_series, uint64_t end_ns);
uint64_t probe_deadline_ns(double budget_s);

/* Append median and spread of the best series: the one of the largest median, so several
 * only of what is the better the more it is.
 * Disturbed trials count only where fewer than PROBE_TRIALS_MIN others exist. */
MUST int probe_report_best(struct probe_ctx *c, const char *name, const char *unit,
                           int n_threads, const struct probe_series *s, int n_series);
/* Where median or spread could not be computed: unavailable, with the reason. */
void probe_value_finish(struct probe_value *v);
/* Append "not available, because". */
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

/* The widest instruction set of this processor that has memory loops. */
const struct probe_isa *probe_widest(void);

#endif
