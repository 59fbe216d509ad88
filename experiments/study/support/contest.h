/* experiments/study/support/contest.h - our GEMMs and the rivals', run in turn.
 *
 * A round runs every side once and begins with another side than the round before, so
 * that nobody always follows the same one, and a drift of the machine meets all alike.
 * A rival that is absent, has no such type, or dies, leaves with a reason; the others go
 * on.   Threads: one caller. */
#ifndef STUDY_CONTEST_H
#define STUDY_CONTEST_H

#include <stdbool.h>

#include "baselines/gemm.h"
#include "tune/measure.h"

#define STUDY_RIVALS_MAX 8
#define STUDY_SIDES_MAX  (4 + STUDY_RIVALS_MAX)
#define STUDY_ROUNDS_MAX 99
#define STUDY_WHY_MAX    96

/* Every rival this project knows, in the order of gemm_rival_names. */
struct study_rivals {
    struct gemm_rival *r[STUDY_RIVALS_MAX]; /* NULL: not here */
    char why[STUDY_RIVALS_MAX][STUDY_WHY_MAX];
};
/* Open those that are not open: one that was lost may suit the next shape. */
void study_rivals_open(struct study_rivals *r, const struct gemm_rival_opts *o);
void study_rivals_close(struct study_rivals *r);

/* One that takes part: ours, on a bench, or a rival. */
struct study_side {
    const char *name;
    struct tune_bench *bench; /* NULL: a rival */
    struct kern_schedule schedule;
    int rival; /* in study_rivals */
    bool lost; /* left the rounds; why stands in study_rivals */
    double s[STUDY_ROUNDS_MAX];
    double median_s; /* NaN: lost */
};

struct study_contest {
    struct study_rivals *rivals;
    struct par_team *team; /* woken before a run of ours, as rivals wake theirs: parked
                              threads must not be timed. NULL: nobody to wake */
    int n_threads;
    struct study_side sides[STUDY_SIDES_MAX];
    int n, n_ours, n_rounds; /* ours come first */
};

/* A side of ours; *bench is ready for its shape. Returns its index. */
int study_contest_add(struct study_contest *c, const char *name, struct tune_bench *bench,
                      const struct kern_schedule *s);
/* Rival i, made ready for the shape in at most budget_s. False: it cannot, and
 * rivals->why[i] says why. */
bool study_contest_add_rival(struct study_contest *c, int i, const char *type,
                             const struct tune_shape *shape, bool warm, double budget_s);
/* Rounds until `seconds` have passed, at least three, at most n_max; one before warms up.
 * Sets the medians. Fails when one of ours does. */
MUST int study_contest_run(struct study_contest *c, int n_max, double seconds);

/* The rival with the lowest median; -1: there is none. */
int study_contest_best_rival(const struct study_contest *c);
/* The median over the rounds of (time of `rival` / time of `ours`). */
double study_contest_ratio(const struct study_contest *c, int ours, int rival);

#endif
