/* plan/tree_search.h - which cores a phase should use: the search over TopoTrees.
 *
 * Groups first (latent structure), then removes (contention), each tree read by
 * sandwich-config; a transformation tree whose node is no better than its best parent is
 * not followed. What a configuration takes is asked of an evaluator: a simulator, or the
 * engine on this host; both through the same budget, repeats and counters.
 * Paper: Sandwich 5.2, 5.3.   Threads: one. */
#ifndef PLAN_TREE_SEARCH_H
#define PLAN_TREE_SEARCH_H

#include "base/opt.h"
#include "topo/service_config.h"

/* One measurement: seconds that a step of the phase takes, mean over its trace. `repeat`
 * counts the measurements of this configuration. ERR_UNSUPPORTED: it cannot be run (the
 * search goes on without it); another error ends the search. */
struct plan_evaluation {
    int (*measure)(void *ctx, const struct topo_config *c, int repeat, double *seconds);
    void *ctx;
    double noise_frac; /* standard deviation of one measurement, relative */
    bool simulated;    /* its seconds do not pass here */
};

struct plan_tree_search_opts {
    bool group, remove, prune, hash; /* false: an ablation */
    bool random;           /* sample trees and cross-sections at random, same budget */
    bool all_cores;        /* prefill in the paper: no remove */
    int64_t k;             /* keep so many configurations */
    int64_t final_repeats; /* ... of each of the k at the end, in turn */
    double margin;         /* times the noise: what is no gain (eps = margin * noise) */
    int64_t max_measurements; /* 0: no limit */
    double max_s;             /* of wall time; 0: no limit */
    int64_t seed;
};
extern const struct opt_row plan_tree_search_opt_table[]; /* defaults: the whole method */

struct plan_choice {
    struct topo_tree *tree; /* owned */
    struct topo_config config;
    double seconds; /* the estimate of measure/compare.h */
    int n_measurements;
    bool ties; /* with the best, within the margin */
};

struct plan_tree_search_counts {
    int64_t n_grouped; /* trees of the group closure, the fundamental one included */
    int64_t n_trees;   /* different trees looked at */
    int64_t n_merged;  /* reached again and recognised by their hash */
    int64_t n_pruned;  /* no better than their best parent: not followed */
    int64_t n_configs; /* different configurations measured */
    int64_t n_refused; /* cross-sections that the operators do not allow */
    int64_t n_measurements;
    bool complete; /* false: the budget ended it */
    double wall_s;
};

struct plan_tree_found {
    struct plan_choice *top; /* [n_top], best first; owned */
    int n_top;
    int best; /* of top[]: the chosen one. Where several tie with the fastest, the one of
                 the fewest transformations, then of the fewest threads: structure that
                 noise suggests is not "found" */
    struct plan_tree_search_counts counts;
    bool latent;   /* the chosen tree has a group that pays: better than the best choice
                     without groups by more than the margin */
    char *explain; /* the reasoned answer, lines of text; owned */
};

/* From a fundamental tree (lent; its machine must outlive *out). ERR_UNSUPPORTED: the
 * operators or the evaluator allow no configuration at all. */
MUST int plan_tree_search(struct plan_tree_found *out,
                          const struct topo_tree *fundamental,
                          const struct topo_limits *limits,
                          const struct plan_evaluation *e,
                          const struct plan_tree_search_opts *o);
void plan_tree_found_free(struct plan_tree_found *f); /* twice is fine */

#endif
