/* experiments/study/support/step_times.h - how long this engine's steps take: a batch of prompts in
 * one step, and then one token of each of its sequences. The whole serving loop is timed, by the
 * engine's public API, as a simulator of a cluster wants it.
 * Threads: one; the engine has its own. */
#ifndef STUDY_STEP_TIMES_H
#define STUDY_STEP_TIMES_H

#include "cluster/perf.h"
#include "experiments/load/study.h"

struct step_times_opts {
    const char *model;
    int precision, kv_type;
    int64_t threads; /* 0: one per CPU */
    int64_t n_steps; /* token steps of a measurement, each timed */
    int64_t rounds;  /* all points in turn, this often */
};

/* Measure points[n]: prompt_tok and batch are given, output_tok, prompt_ms and token_ms set, to the
 * lowest decile of all rounds (measure/compare.h says why).
 *   spread  [2][n] median / lowest decile, less 1: prompts, tokens
 * Errors of the engine; ERR_STATE: a batch of prompts was not computed in one step. */
MUST int study_step_times(struct cluster_point *points, int n, double *spread,
                          const struct step_times_opts *o, struct study_cell *cell);

#endif
