/* experiments/study/support/engine.h - a model opened on this host, whose steps a study
 * times under several phases.   Threads: one caller; it becomes thread 0 of the team. */
#ifndef STUDY_ENGINE_H
#define STUDY_ENGINE_H

#include "cpu/cpu.h"
#include "experiments/load/study.h"
#include "ranks/bench_steps.h"

/* `path`: a model's file; o->step_tok 0: the engine's own limit of a step. ERR_ARG: no path.
 * On error *out is closed. */
MUST int study_engine_open(struct model_bench *out, const char *path,
                           const struct model_bench_opts *o);

/* ranks x threads of the team's first threads. ERR_ARG: more than the budget. */
MUST int study_engine_phase(struct model_bench *e, struct model_phase **out, int n_ranks,
                            int n_threads);

/* Where the time of a step goes, in seconds by the clock of thread 0, which has an equal part of
 * every operator: the matrices with the output projection; attention with writing keys and
 * values; norms, rotary embedding and copies; waiting for other threads, which had more to do
 * or were held up. */
enum { STUDY_LINEAR, STUDY_ATTENTION, STUDY_OTHER, STUDY_WAIT, STUDY_N_CLASSES };
/* A prompt of n_tok tokens, or a token after n_tok others. */
MUST int study_engine_step(struct model_bench *e, struct model_phase *p, bool decode,
                           int64_t n_tok, double *seconds, double of[STUDY_N_CLASSES]);
/* Tokens a second of such a step that the read bandwidth (decode) or the peak (prefill) of the
 * card allows; NaN where it has none. */
double study_engine_bound_tok_s(const struct model_bench *e, const json_t *card,
                                bool decode, int64_t n_tok,
                                enum kern_precision precision);

/* CPUs, weights, variants and threads, as the cell's attributes. */
void study_engine_report(struct study_cell *c, const struct model_bench *e);

#endif
