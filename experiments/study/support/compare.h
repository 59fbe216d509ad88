/* experiments/study/support/compare.h - alternatives of a study, timed in turn.
 *
 * A study declares its alternatives and a trial function. Rounds, the progress display, the
 * series of the rounds' times, further numbers of each trial, estimates, and ratios with their
 * intervals are the same for all studies and stand here. The timing itself is
 * measure/compare.h's.   Threads: one caller. */
#ifndef STUDY_COMPARE_H
#define STUDY_COMPARE_H

#include "experiments/load/study.h"
#include "measure/compare.h"

#define STUDY_ALTERNATIVES_MAX 16
#define STUDY_PARTS_MAX        8

/* All zero before the first comparison. */
struct study_compare {
    /* Set by the study; what is zero is not used. */
    struct measure_opts how;   /* for a number of rounds that is not known before */
    const char *const *series; /* [n] names: the times of an alternative's rounds become a
                                  series of the cell */
    const char *doing;         /* on the progress display, from `from` to 1 */
    double from;
    /* Set by study_compare(). */
    struct measure_report time[STUDY_ALTERNATIVES_MAX];
    int n_rounds;
    int round; /* of the running trial; 0 warms up */
    /* Private. */
    struct study_cell *cell;
    measure_fn trial;
    void *arg;
    struct measure *measure;
    double *parts;
    int n, max_rounds, running, n_trials[STUDY_ALTERNATIVES_MAX];
};

/* Run `rounds` rounds of n alternatives by trial(arg), or with 0 rounds as `how` has them;
 * what was measured before is forgotten. `cell`: NULL where nothing is reported.
 * study_compare_close() also after an error. Fails as measure_open() and the trials do. */
MUST int study_compare(struct study_compare *c, struct study_cell *cell, int n,
                       int64_t rounds, measure_fn trial, void *arg);
void study_compare_close(struct study_compare *c); /* twice is fine */

/* Within a trial: a further number of it, such as a share of its time; `part` is below
 * STUDY_PARTS_MAX. Every alternative must run in every round. */
void study_compare_put(struct study_compare *c, int part, double value);
/* The numbers of alternative i: [n_rounds], without the one that warms up; their median; they
 * as a series of the cell. */
const double *study_compare_part(const struct study_compare *c, int i, int part);
double study_compare_median(const struct study_compare *c, int i, int part);
void study_compare_series(const struct study_compare *c, const char *name,
                          const char *unit, int i, int part);
/* The times of alternative i: [n_rounds]. */
const double *study_compare_times(const struct study_compare *c, int i);

/* Report as value `name` the time of a over the time of b, less `less`, with its 95 % interval,
 * by the rounds in which both ran: how many times as fast b is, or with 1 its gain. Returns
 * the ratio. */
double study_compare_ratio(const struct study_compare *c, const char *name, int a, int b,
                           double less);

/* The A/A of alternative a, which ran in each round as alternative `again` as well: report the
 * times of that as s_again<suffix>, their ratio as ratio_again<suffix>, and as
 * detectable_frac<suffix> the smallest difference from another that it could have seen. */
void study_compare_again(const struct study_compare *c, const char *suffix, int again,
                         int a);

#endif
