/* experiments/study/support/plan.h - plans by the methods of plan/method.h, as `sandwich
 * plan` makes them: on this host by running the engine, for other machines by the simulator.
 *   Threads: one. */
#ifndef STUDY_PLAN_H
#define STUDY_PLAN_H

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "plan/method.h"

/* Help of an option that names the target of a study: what is planned for, and where. */
#define STUDY_TARGET_HELP                                                                \
    "Model file, which runs on this host, or NAME@MACHINE: architecture NAME on a "      \
    "simulated machine, with bf16 weights, or NAME:f32@MACHINE. Example: "               \
    "llama-3.2-3b@xeon8272clx2"

/* A simulated target: its evidence is "simulated", that of others the job's. */
static inline bool study_target_is_simulated(const char *target)
{
    return target && strchr(target, '@');
}

/* n requests drawn from a fit of datasets/, prompts and outputs cut to max_tok: mem_free() of
 * out->n_prompt, which has both. ERR_NOTFOUND: no such fit. */
MUST int study_lengths_draw(struct plan_lengths *out, const char *fit, int64_t n,
                            int64_t max_tok, int64_t seed);

struct study_plan_opts {
    const char *target; /* as STUDY_TARGET_HELP has it */
    struct plan_lengths lengths;
    int batch, precision; /* sequences of a decode step; enum kern_precision */
    double max_s;         /* limit of the search of each phase */
    int64_t seed;
};

/* The question that all methods answer for a target. All zero before open; it must stay where it
 * is. */
struct study_planner {
    struct topo_machine *machine;
    struct model_config model;
    struct cpu_budget budget; /* this host's */
    char params_path[PATH_MAX];
    struct plan_search_opts search;
};
/* After an error study_planner_close() is still to be called. ERR_ARG, ERR_NOTFOUND: the
 * target is not one. */
MUST int study_planner_open(struct study_planner *out, const struct study_plan_opts *o);
void study_planner_close(struct study_planner *p); /* twice is fine */
/* Plan by a method. *out: plan_search_result_free(), also after an error. n_ranks: of even_split, 0
 * for other methods. */
MUST int study_plan(struct plan_search_result *out, struct study_planner *p,
                    const char *method, int n_ranks);

#endif
