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
                            int n_threads, const struct par_coll *coll);

/* CPUs, weights, variants and threads, as the cell's attributes. */
void study_engine_report(struct study_cell *c, const struct model_bench *e);

#endif
