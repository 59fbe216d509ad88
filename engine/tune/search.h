/* tune/search.h - shared by policies: the shape being searched, its measurements so far, and
 * the best of them.
 *
 * Schedules are compared by their fastest runs, since disturbances only add time. No
 * schedule is measured twice. When the budget is spent, nothing is measured and every new
 * schedule counts as infinitely slow, so that every search ends.
 *
 * The fastest of many short measurements is partly luck. So whatever a policy found by measuring is
 * measured again here, by the same rule for all: tune_opts.retest.   Threads: the policy's one. */
#ifndef TUNE_SEARCH_H
#define TUNE_SEARCH_H

#include "tune/policy.h"
#include "tune/space.h"

/* A change counts as a gain when it saves more than this fraction, which is the difference
 * between repeated measurements of one schedule (half of the precision that
 * measure/compare.h aims at). */
#define TUNE_GAIN       0.01
#define TUNE_RETEST_MAX 32

struct tune_seen {
    struct kern_schedule s;
    int n_threads;
    struct measure_report t;
};

struct tune_search {
    struct tune_ctx *c;
    struct tune_shape shape; /* the one on the bench now */
    const struct kern_mat *w;
    struct tune_seen *seen; /* of this shape */
    int n_seen, cap;
    /* The fastest on all c->n_threads; best_t.estimate is infinite before the first. */
    struct kern_schedule best;
    struct measure_report best_t;
    double spent0_s; /* the bench's cost when the search began */
    /* Set by a policy: of those measured again, this one is taken where none is faster by
     * TUNE_GAIN. mr = 0 (before each shape): none. */
    struct kern_schedule keep;
};

/* Prepare the bench for a shape and discard earlier measurements. */
MUST int tune_search_shape(struct tune_search *q, const struct tune_shape *s);
/* Clamp and time s. *seconds is infinite where the schedule is not legal or the budget is
 * spent. ERR_CANCELED: the search was asked to stop. */
MUST int tune_search_try(struct tune_search *q, struct kern_schedule *s, int n_threads,
                         double *seconds);
/* Sort q->seen, the fastest first. */
void tune_search_sort(struct tune_search *q);
/* Is the schedule legal for the shape on the bench? Sets no error. */
bool tune_search_legal(const struct tune_search *q, const struct kern_schedule *s,
                       int n_threads);
/* A first look at *n schedules on all threads, by fewer runs than tune_search_try() makes:
 * clamp them, leave out what is not legal or there twice, and run the rest `rounds` times,
 * in turn. s[] and seconds[] are then of *n, 0 when the budget is spent. They do not count as
 * tried. ERR_CANCELED: the search was asked to stop. */
MUST int tune_search_look(struct tune_search *q, struct kern_schedule *s, int *n,
                          int rounds, double *seconds);
/* The schedule of kern_schedule_default() for the shape on the bench, clamped. */
void tune_search_default(const struct tune_search *q, struct kern_schedule *s);

/* A policy's search of one shape, which is on the bench: sets *s to the schedule, and *t
 * (zero before) where it was measured for this shape. What was measured is measured again
 * with the fastest others; what was calculated or reused is taken as it is. */
typedef int (*tune_one_fn)(void *arg, struct tune_search *q, int i,
                           struct kern_schedule *s, struct measure_report *t);
struct tune_steps {
    tune_one_fn one; /* called for each shape that is not known */
    /* Offline work, done first; NULL: none. */
    int (*before)(void *arg, struct tune_search *q);
    /* A shape takes s: it was known, or was found just now. Not called where the budget
     * left the default. May be NULL. */
    void (*took)(void *arg, const struct tune_ctx *c, const struct kern_schedule *s);
};
/* Run the steps over all shapes of c in their order. Handles the budget, interrupts,
 * c->known, c->done and the legality of schedules. */
MUST int tune_search_run(struct tune_ctx *c, struct kern_schedule *out,
                         const struct tune_steps *steps, void *arg);

#endif
