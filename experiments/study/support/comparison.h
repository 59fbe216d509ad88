/* experiments/study/support/comparison.h - our GEMMs and the libraries', timed in turn.
 *
 * measure/compare.h runs every entry once in each round and says how long each takes. A
 * library that is absent, has no such type, or dies, leaves with a reason, and the others
 * go on.   Threads: one caller. */
#ifndef STUDY_COMPARISON_H
#define STUDY_COMPARISON_H

#include <stdbool.h>

#include "baselines/gemm.h"
#include "measure/compare.h"
#include "tune/measure.h"

#define STUDY_BASELINES_MAX 8
#define STUDY_ENTRIES_MAX   (4 + STUDY_BASELINES_MAX)
#define STUDY_ROUNDS_MAX    99
#define STUDY_WHY_MAX       96

/* Every library this project knows, in the order of gemm_baseline_names. */
struct study_baselines {
    struct gemm_baseline *b[STUDY_BASELINES_MAX]; /* NULL: not here */
    char why[STUDY_BASELINES_MAX][STUDY_WHY_MAX];
};
/* Open those that are not open: one that was lost may suit the next shape. */
void study_baselines_open(struct study_baselines *b, const struct gemm_baseline_opts *o);
void study_baselines_close(struct study_baselines *b);

/* Ours, on a bench, or a library's. */
struct study_entry {
    const char *name;
    struct tune_bench *bench; /* NULL: a library's */
    struct kern_schedule schedule;
    int baseline; /* in study_baselines */
    struct measure_report
        time; /* estimate: NaN: it left; why stands in study_baselines */
};

struct study_comparison {
    struct study_baselines *baselines;
    struct par_team *team; /* woken before a run of ours, as libraries wake theirs: parked
                              threads must not be timed. NULL: nobody to wake */
    int n_threads;
    struct study_entry entries[STUDY_ENTRIES_MAX];
    int n, n_ours, n_rounds; /* ours come first */
    struct measure *measure; /* of the latest run; study_comparison_close() */
};

/* An entry of ours; *bench is ready for its shape. Returns its index. */
int study_comparison_add(struct study_comparison *c, const char *name,
                         struct tune_bench *bench, const struct kern_schedule *s);
/* Library i, made ready for the shape in at most budget_s. False: it cannot, and
 * baselines->why[i] says why. */
bool study_comparison_add_baseline(struct study_comparison *c, int i, const char *type,
                                   const struct tune_shape *shape, bool warm,
                                   double budget_s);
/* Rounds until all times are known well enough or `seconds` have passed, at least three, at
 * most n_max; one before them warms up. Sets the entries' times. Fails when one of ours
 * does. */
MUST int study_comparison_run(struct study_comparison *c, int n_max, double seconds);
void study_comparison_close(struct study_comparison *c);

/* The time of entry i in each of n_rounds rounds, NaN where it did not run. */
const double *study_comparison_times(const struct study_comparison *c, int i);
/* The library with the lowest time; -1: there is none. */
int study_comparison_best_baseline(const struct study_comparison *c);
/* Time of entry `other` over time of entry `ours`, by the rounds that both ran in: the
 * median, with its interval. */
void study_comparison_ratio(const struct study_comparison *c, int ours, int other,
                            struct measure_report *out);

#endif
