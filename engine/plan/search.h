/* plan/search.h - from a machine, a model and a trace to a plan with reasons.
 *
 * Decode first: its configuration places the weights. Then prefill, over weights that lie
 * where decode wants them.   Paper: Sandwich 5.   Threads: one. */
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include "plan/evaluator.h"
#include "plan/plan.h"
#include "plan/workload.h"

/* How far a search is. */
struct plan_progress {
    const char *what; /* "decode", "prefill", "steps of both phases" */
    int64_t n_measurements;
    double elapsed_s, limit_s; /* of this part; limit_s: at most so long, 0: no limit */
};

struct plan_search_opts {
    const struct plan_evaluator *evaluator;
    struct plan_evaluator_opts e; /* workload, placement, phase: set per phase here */
    const struct model_config *model;
    enum kern_type type;
    struct plan_lengths lengths;
    int batch; /* sequences of a decode step */
    bool strict_tp;
    int max_ranks; /* 0: any */
    bool one_team; /* prefill on decode's CPUs and more: what this engine runs */
    struct topo_tree_opts tree;
    struct plan_tree_search_opts search;
    /* Called as a part begins and before each of its measurements; may be NULL. */
    void (*progress)(void *ctx, const struct plan_progress *p);
    void *progress_ctx;
};

struct plan_found {
    struct plan plan;
    struct topo_tree *fundamental; /* the searches' trees borrow from it */
    struct plan_tree_found prefill, decode;
    char note[200]; /* what of the machine was left out and why, "" if nothing */
};

/* ERR_ARG, or what the searches say. */
MUST int plan_search(struct plan_found *out, const struct plan_search_opts *o);
void plan_found_free(struct plan_found *f); /* twice is fine */

/* About how long that takes on a host. */
#define PLAN_COSTS_S 10.0

/* What a step of 1, 2, 4 ... rows takes under each of the plan's phases, for the plan's
 * tables: by `e`, that prefill was searched with, the phases in turn. The plan stays without where both phases are one, or cannot be timed together. */
MUST int plan_search_costs(struct plan *p, const struct plan_search_opts *o,
                           struct plan_evaluation *e, const struct topo_config *prefill,
                           const struct topo_config *decode);

/* The plan's phase from a choice. */
MUST int plan_phase_set(struct plan_phase *out, const struct topo_config *c);

#endif
