/* plan/search.h - from a machine, a model and a trace to a plan with reasons.
 *
 * What a method (plan/method.h) is asked and what it answers, and the search itself. It
 * begins with decode, whose configuration places the weights, and then searches prefill, over the
 * weights as decode has placed them. Paper: Sandwich 5. Threads: one. */
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include <signal.h>

#include "plan/evaluator.h"
#include "plan/plan.h"
#include "plan/workload.h"

/* How far a search is. */
struct plan_progress {
    const char *what; /* "decode", "prefill", "steps of both phases", ... */
    int64_t n_measurements;
    double elapsed_s, limit_s; /* of this part; limit_s: at most so long, 0: no limit */
};

struct plan_search_opts {
    const struct plan_evaluator *evaluator;
    struct plan_evaluator_opts e; /* kv_type, workload, placement, phase: set here */
    const struct model_config *model;
    char model_id[17];             /* as a plan has it */
    struct model_cost_types types; /* in memory */
    struct plan_trace trace;
    int batch; /* sequences of a decode step */
    bool strict_tp;
    int max_ranks;  /* 0: any */
    int n_ranks;    /* of even_split; 0: one for each memory node */
    bool one_team;  /* prefill on decode's CPUs and more: what this engine runs */
    double costs_s; /* for the tables of costs; 0: PLAN_COSTS_S; below 0: no tables */
    struct topo_tree_opts tree;
    struct plan_tree_search_opts search;
    /* A value other than 0, set by a signal handler, ends the search with ERR_CANCELED. May be
     * NULL. */
    const volatile sig_atomic_t *stop;
    /* Called as a part begins and before each of its measurements; may be NULL. */
    void (*progress)(void *ctx, const struct plan_progress *p);
    void *progress_ctx;
};

/* The most candidates that are ranked, at least the paper's k. */
#define PLAN_RANKED_MAX 16

struct plan_search_result {
    struct plan plan;
    /* The plan, after a search one rank of every core (which then may have no expected times;
     * the searched plan where that one rank is the plan), and further ones that may be as
     * good, by the expected time of a request. They have no tables of costs. Owned. */
    struct plan *ranked; /* [n_ranked]; ranked[0] is the plan */
    int n_ranked;
    char *explain;                 /* the result with its reasons, lines of text; owned */
    struct topo_tree *fundamental; /* the searches' trees borrow from it */
    struct plan_tree_result prefill,
        decode;     /* of the search; empty after other methods */
    char note[200]; /* parts of the machine left out, and why; "" if none */
};

/* ERR_ARG, or what the searches say. */
MUST int plan_search(struct plan_search_result *out, const struct plan_search_opts *o);
void plan_search_result_free(struct plan_search_result *f); /* twice is fine */

/* About how long that takes on a host. */
#define PLAN_COSTS_S 10.0

static inline double plan_costs_s(const struct plan_search_opts *o)
{
    return o->costs_s > 0 ? o->costs_s : PLAN_COSTS_S;
}

/* Fill the plan's tables of seconds by rows: a step of 1, 2, 4 ... rows under each phase, the
 * phases in turn, measured by `e`, which prefill was searched with. There are no tables where
 * both phases are one, or cannot be timed together. */
MUST int plan_search_costs(struct plan *p, const struct plan_search_opts *o,
                           struct plan_evaluation *e, const struct topo_config *prefill,
                           const struct topo_config *decode);

/* Such tables for any plan of this machine. ERR_ARG: the machine lacks one of its CPUs. */
MUST int plan_measure_costs(struct plan *p, const struct plan_search_opts *o);

/* The plan's phase from a choice. */
MUST int plan_phase_set(struct plan_phase *out, const struct topo_config *c);

/* ---- for the methods ---- */

/* Machine, evidence and method of a plan to be filled. */
void plan_begin(struct plan *p, const struct plan_search_opts *o, const char *method);
/* Can one team run both phases: are decode's CPUs among prefill's? */
bool plan_one_team(const struct plan *p);
/* The limits that the options and the model set. */
void plan_search_limits(struct topo_limits *out, const struct plan_search_opts *o,
                        bool strict);

/* Open o's evaluator for the steps of a phase; `placement`: struct plan_evaluator_opts. *work is
 * filled and lent to *out, which is closed by o->evaluator. */
MUST int plan_evaluation_open(struct plan_evaluation *out, struct simulate_workload *work,
                              const struct plan_search_opts *o, enum topo_phase phase,
                              const struct topo_config *placement);

/* An evaluation that reports its progress to o->progress, around another one. */
struct plan_watch {
    struct plan_evaluation e; /* to be used in place of `inner` */
    const struct plan_evaluation *inner;
    const struct plan_search_opts *o;
    struct plan_progress progress;
    uint64_t start_ns;
};
/* Begin a part; inner NULL: nothing is measured through it. *w must stay where it is. */
void plan_watch_begin(struct plan_watch *w, const struct plan_search_opts *o,
                      const struct plan_evaluation *inner, const char *what,
                      double limit_s);
/* A measurement of another kind is about to be made. */
void plan_watch_count(struct plan_watch *w);

#endif
