/* tune/search.h - what the policies share: one shape being searched, everything measured
 * for it so far, and the best of that.
 *
 * Schedules are compared by their fastest runs: what disturbs a run only ever adds time.
 * A schedule tried twice is measured once. Past the budget nothing is measured any more
 * and every new schedule counts as infinitely slow, so that a search comes to its end by
 * itself.   Threads: the policy's one. */
#ifndef TUNE_SEARCH_H
#define TUNE_SEARCH_H

#include "tune/policy.h"
#include "tune/space.h"

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
};

/* Put a shape on the bench and forget what was seen. */
MUST int tune_search_shape(struct tune_search *q, const struct tune_shape *s);
/* Clamp and time s. *seconds is infinite where the schedule is not legal or the budget is
 * spent. ERR_CANCELED: the search was asked to stop. */
MUST int tune_search_try(struct tune_search *q, struct kern_schedule *s, int n_threads,
                         double *seconds);
/* Can the shape on the bench be computed so? Sets no error. */
bool tune_search_legal(const struct tune_search *q, const struct kern_schedule *s,
                       int n_threads);
bool tune_search_over(const struct tune_search *q);
/* The schedule of kern_schedule_default() for the shape on the bench, clamped. */
void tune_search_default(const struct tune_search *q, struct kern_schedule *s);

/* A policy's way to do one shape: leave the answer in *s, and set *t where it was
 * measured for this shape (zero before). The shape is on the bench. */
typedef int (*tune_one_fn)(void *arg, struct tune_search *q, int i,
                           struct kern_schedule *s, struct measure_report *t);
struct tune_steps {
    tune_one_fn one; /* each shape that is not known */
    /* What works offline, first; NULL: nothing. */
    int (*before)(void *arg, struct tune_search *q);
    /* Shape i was known to take s; may be NULL. */
    void (*known)(void *arg, const struct tune_ctx *c, const struct kern_schedule *s);
};
/* Do the steps over all shapes of c in their order, with the budget, the interrupt,
 * c->known, c->done and legality seen to. */
MUST int tune_search_run(struct tune_ctx *c, struct kern_schedule *out,
                         const struct tune_steps *steps, void *arg);

#endif
