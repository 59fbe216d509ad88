/* experiments/study/support/served_load.h - this engine under Poisson arrivals, in real time: how
 * long it computes steps of how many tokens. Steps are not interrupted, so that a request may be
 * submitted late, before the next step.
 * Threads: one; the engine has its own. */
#ifndef STUDY_SERVED_LOAD_H
#define STUDY_SERVED_LOAD_H

#include <stdint.h>

#include "experiments/load/study.h"

#define SERVED_LOAD_TOK_MAX 8192

struct served_load_opts {
    const char *model, *policy;
    int64_t max_seqs, max_step_tok;
    double rate, duration_s, warmup_s; /* steps of the warm-up do not count */
    const int64_t *prompt_tok,
        *output_tok; /* [n] of the requests, in order, then again */
    int64_t n;
    uint64_t seed; /* of the arrivals */
};

struct served_load {
    double by_tok_s[SERVED_LOAD_TOK_MAX +
                    1]; /* seconds in steps of i tokens; last: or more */
    double busy_s, all_s;
    int64_t n_submitted, n_ended, n_steps;
};

/* ERR_*: of the engine. */
MUST int study_served_load(struct served_load *out, const struct served_load_opts *o,
                           struct study_cell *cell);

#endif
