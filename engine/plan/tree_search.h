/* plan/tree_search.h - which cores a phase should use: the search over TopoTrees.
 *
 * The search first applies group to the fundamental tree in every way, which adds levels
 * that the machine may not report (latent structure). To each resulting tree it then
 * applies remove, which leaves out cores (contention). The cross-sections of a tree are
 * its service configurations, and all of them are measured. A tree that is not faster
 * than the tree it was made from is not transformed further. An evaluator measures: a
 * simulator, or the engine on this host. Both use the same budget, repeats and counters.
 *
 * The paper also stops early: configurations with the same number of ranks and the same
 * memory nodes form a process group; when several in a row are not optimal, the whole group is
 * discarded. How many, and compared with what, it does not say. Here that is the option
 * `patience`: a group ends when that many of its configurations in a row are not faster than
 * the fastest of all so far. Its other configurations are then not measured, and those that were
 * are not candidates, except for the fastest of all. It is off by default.
 *
 * Deviations from the paper. Its traversal is topological: a tree that is not faster than all
 * of its parents is discarded with all of its descendants, even those that another parent
 * reaches. Here a tree is compared with the parent that it was reached from first; the option
 * `traversal` is `paper` for the strict rule. In the paper any improvement counts, here one of
 * `margin` times the noise. `uneven` adds plans that no tree has, which the paper's search
 * lacks (uneven.c). plan_tree_search_as_paper() sets what the paper says, next to which
 * topo_hidden_truth has the search.
 * Paper: Sandwich 5.2, 5.3.   Threads: one. */
#ifndef PLAN_TREE_SEARCH_H
#define PLAN_TREE_SEARCH_H

#include "base/opt.h"
#include "topo/service_config.h"

/* An evaluator. measure() makes one measurement: *seconds is the time of a step of the
 * phase, averaged over the phase's trace. `repeat` is the number of earlier measurements
 * of this configuration. ERR_UNSUPPORTED: the configuration cannot be run, and the search
 * continues without it. Any other error ends the search. */
struct plan_evaluation {
    int (*measure)(void *ctx, const struct topo_config *c, int repeat, double *seconds);
    void *ctx;
    double noise_frac; /* standard deviation of one measurement over its mean */
    bool simulated;    /* *seconds is simulated time, not time that passes on this host */
};

/* How the trees that remove() makes are visited; the option `traversal` says more. */
enum plan_traversal { PLAN_BEST_PARENT, PLAN_PAPER };

struct plan_tree_search_opts {
    int traversal;                   /* enum plan_traversal */
    bool group, remove, prune, hash; /* parts of the method; false: an ablation */
    bool uneven;                     /* then plans that trees cannot express */
    bool random;           /* draw trees at random in place of the search, same budget */
    bool all_cores;        /* never remove a core, as the paper does for prefill */
    int64_t k;             /* number of best configurations to report */
    int64_t final_repeats; /* rounds at the end; a round measures each candidate once */
    /* A difference of times below margin * noise_frac counts as none. */
    double margin;
    int64_t patience;         /* see above; 0: groups are never discarded */
    int64_t max_measurements; /* 0: no limit */
    double max_s;             /* wall time, s; 0: no limit */
    int64_t seed;
};
/* The defaults are the whole method. */
extern const struct opt_row plan_tree_search_opt_table[];
/* Make these the options of the search as the paper prints it: its traversal, any improvement
 * counts, trees alone. `patience` stays as it is, since the paper prints no value of it. */
void plan_tree_search_as_paper(struct plan_tree_search_opts *o);

/* One of the best configurations. */
struct plan_candidate {
    struct topo_tree *tree; /* the tree of `config`; owned */
    struct topo_config config;
    /* Time of a step: estimate and 95 % interval of n measurements made after the search; n = 0:
     * the one made in it, with NAN as the interval. */
    double seconds, lo, hi;
    int n;
    bool ties; /* the fastest one is not certainly faster than this one */
    int trial; /* the search's own */
};

struct plan_tree_search_counts {
    int64_t n_grouped; /* trees of the group closure, the fundamental one included */
    int64_t n_trees;   /* trees whose cross-sections were evaluated */
    int64_t n_merged;  /* trees that were reached again and recognised by their hash */
    int64_t n_pruned;  /* trees not transformed further: not faster than their parent */
    int64_t n_configs; /* different configurations measured */
    int64_t n_refused; /* cross-sections that operators or evaluator do not support */
    int64_t n_measurements;
    double
        measured_s; /* the steps that were measured, added up: what the search would take
                          on a machine that is simulated */
    bool complete;  /* false: the budget ended the search early */
    double group_s; /* wall time in which group() made the trees */
    double wall_s;  /* of the whole search */
};

struct plan_tree_result {
    struct plan_candidate *top; /* [n_top], best first; owned */
    int n_top;
    /* The index in top[] of the chosen configuration. Among those that tie with the
     * fastest it is the one with the fewest groups, then removes, then threads, then ranks,
     * so that structure which only noise suggests is not reported. */
    int best;
    struct plan_tree_search_counts counts;
    /* There is latent structure: the chosen tree has groups and is certainly faster, by 1 %
     * or more, than the best configuration without groups. */
    bool latent;
    char *explain; /* the result with its reasons, lines of text; owned */
};

/* Search from a fundamental tree, which is lent; its machine must outlive *out. `limits`:
 * what the model's operators allow; NULL: no limits. The caller frees *out with
 * plan_tree_result_free(); on error it is already freed. ERR_UNSUPPORTED: the operators or
 * the evaluator do not support any configuration. */
MUST int plan_tree_search(struct plan_tree_result *out,
                          const struct topo_tree *fundamental,
                          const struct topo_limits *limits,
                          const struct plan_evaluation *e,
                          const struct plan_tree_search_opts *o);
void plan_tree_result_free(struct plan_tree_result *f); /* may be called twice */

#endif
