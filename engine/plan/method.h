/* plan/method.h - plug-ins that choose a plan: the search, and the methods of other engines.
 *
 * One file in plan/method/ ends in one `const struct plan_method plan_method_<stem>`. All
 * answer the same question from the same evaluator, so that a comparison of plans compares
 * methods.   Paper: Sandwich 5, 8.1 (baselines).   Threads: one. */
#ifndef PLAN_METHOD_H
#define PLAN_METHOD_H

#include "plan/search.h"

struct plan_method {
    const char *name, *help; /* help: a sentence */
    /* *out: plan_search_result_free(); on error it is already freed. ERR_UNSUPPORTED: the model's
     * operators do not allow what the method does. */
    int (*run)(struct plan_search_result *out, const struct plan_search_opts *o);
};
extern const struct plan_method *const plan_methods[];
/* ERR_NOTFOUND names the nearest. */
MUST int plan_method_find(const char *name, const struct plan_method **out);

/* ---- for methods that do not search ---- */

/* The CPUs that they use: the first of each core, by memory node and number. */
struct plan_cores {
    int n, *pus;  /* [n] indices into machine->pus; owned */
    int n_nodes;  /* memory nodes that have some of them */
    int smallest; /* the fewest that such a node has */
};

/* A configuration to choose from; both phases use it. */
struct plan_option {
    int n_ranks, n_threads; /* threads of each rank */
    const int *pus;         /* [n_ranks * n_threads] indices into machine->pus; lent */
    const char *allreduce;  /* how its ranks sum; NULL: as the engine measures */
    char why[400];          /* what it is; the result is appended */
};

MUST int plan_cores_of(struct plan_cores *out, const struct plan_search_opts *o);
void plan_cores_free(struct plan_cores *c); /* twice is fine */

/* Time all options in both phases, in turn, and take the one whose requests are fastest:
 * where several are so within the noise, the one of fewest ranks. Options that operators or
 * evaluator do not support are left out. ERR_UNSUPPORTED: that is all of them. */
MUST int plan_fastest(struct plan_search_result *out, const struct plan_search_opts *o,
                      const char *method, const struct plan_option *v, int n,
                      bool strict);

#endif
