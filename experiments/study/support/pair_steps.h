/* experiments/study/support/pair_steps.h - how much two engines slow each other, one on each of two
 * CPUs: steps of prompts and of tokens, alone and next to the other's, in turn.
 * Threads: one; the engines are processes. */
#ifndef STUDY_PAIR_STEPS_H
#define STUDY_PAIR_STEPS_H

#include "experiments/load/study.h"

struct pair_steps_opts {
    const char *model;
    int precision;
    int64_t prompt_tok;     /* of each prompt, one at a time */
    int64_t batch, ctx_tok; /* of the token steps */
    int64_t rounds;
    double window_s; /* in which the steps of one measurement are */
};

/* *slowdown: [own][neighbour], 0 prompts, 1 tokens: time of a step next to the neighbour's / alone,
 * median over the rounds and both engines, at least 1.
 * ERR_NOTFOUND: fewer than two CPUs. Errors of the engines. */
MUST int study_pair_steps(double slowdown[2][2], const struct pair_steps_opts *o,
                          struct study_cell *cell);

#endif
