/* tune/policy.h - search policies: plug-ins that search schedules for the same micro-kernels.
 *
 * A policy is one file in tune/policy/ ending in one `const struct tune_policy
 * tune_policy_<stem>`. All return schedules for the same micro-kernels, packing, threads
 * and barrier, and all measure through tune/measure.h, which counts every measurement as cost. A
 * policy that profiles offline does it inside run(), where it is counted, too.
 * Threads: one; the bench's team runs the trials. */
#ifndef TUNE_POLICY_H
#define TUNE_POLICY_H

#include <signal.h>

#include "base/opt.h"
#include "tune/measure.h"

/* Options every policy understands or ignores; one table for all (tune_opt_table). */
struct tune_opts {
    char *policy;       /* "sandwich" */
    int64_t sigma;      /* the sliding window over M, in shapes (Table 3's rho) */
    int64_t freeze;     /* shapes in a row that agree before the search ends; 0: sigma */
    double theta;       /* relative change of the slice below which it is reused */
    bool split_k;       /* allow pk > 1 */
    int64_t trials;     /* measurements per shape for policies that sample */
    int64_t retest;     /* fastest schedules that are measured again; 0: none */
    bool start_default; /* the cost model's schedule is a start of the search, and one of
                           those that are measured again */
    double budget_s; /* stop measuring after this time; the rest gets the default; 0: no
                           limit */
    int64_t seed;
};
extern const struct opt_row tune_opt_table[];

struct tune_ctx {
    struct tune_bench *bench;
    int n_threads;
    const struct tune_opts *o;
    /* Shapes of one matrix, ascending in m. */
    const struct tune_shape *shapes;
    int n_shapes;
    /* [n_shapes], or NULL: schedules that an earlier search found; mr = 0: none. A known
     * shape is not searched; a policy that learns from shape to shape learns from it. */
    const struct kern_schedule *known;
    /* Called when the search has found the schedule of shape i (not where the budget left
     * it the default). A value other than OK ends the search with it. May be NULL. */
    int (*done)(void *arg, int i, const struct kern_schedule *s,
                const struct measure_report *t); /* t: NULL where nothing was measured */
    /* Called after each measurement of a schedule by tune_search_try(), of a shape that need not be
     * one of `shapes`. May be NULL. */
    void (*tried)(void *arg, const struct tune_shape *shape,
                  const struct kern_schedule *s, int n_threads,
                  const struct measure_report *t);
    void *arg; /* of both */
    /* A value other than 0, set by a signal handler, ends the search with ERR_CANCELED
     * after the present measurement. May be NULL. */
    const volatile sig_atomic_t *stop;
};

struct tune_policy {
    const char *name, *help;
    /* out[n_shapes], each legal for its shape, also where an error ends the search. */
    int (*run)(struct tune_ctx *c, struct kern_schedule *out);
};
extern const struct tune_policy *const tune_policies[];
/* ERR_NOTFOUND names the nearest. */
MUST int tune_policy_find(const char *name, const struct tune_policy **out);

#endif
