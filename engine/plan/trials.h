/* plan/trials.h - the state of a search over TopoTrees: its trees, its trials and its budget.
 *
 * A trial is a configuration that was measured, or refused. The files of the search make trials
 * (tree_search.c from trees, uneven.c beyond them) and decide between them (decide.c).
 * Paper: Sandwich 5.2, 5.3.   Threads: one. */
#ifndef PLAN_TRIALS_H
#define PLAN_TRIALS_H

#include "base/map.h"
#include "plan/tree_search.h"

/* The identity of a tree: its tree of the group closure, and the arities that remove()
 * left. */
struct plan_tree_id {
    int grouped;                    /* index into plan_trials.grouped */
    uint16_t kept[TOPO_LEVELS_MAX]; /* the arity of each level */
};

/* A plan that no tree has. */
struct plan_uneven {
    int n_nodes, n_threads; /* memory nodes of the machine; threads of a rank */
    int *ranks;             /* [n_nodes] of each node */
    int *pus;               /* all of its PUs, rank by rank */
    bool ordered;           /* cores were taken in the measured order */
    bool mixed;             /* nodes have unequal numbers of ranks */
    bool joint;             /* all threads are one rank */
};

/* A configuration and its first measurement. Several trees may have the same configuration as
 * a cross-section; it is one trial. */
struct plan_trial {
    struct plan_tree_id id; /* of the trees that have it, one with the fewest groups */
    int level;              /* of the cross-section in that tree */
    int n_ranks;
    int n_threads;  /* of all ranks together */
    bool refused;   /* by the evaluator */
    uint64_t group; /* key of its process group; of early stopping only */
    int n;          /* number of measurements */
    double seconds; /* the first measurement, later a mean; INFINITY before it */
    struct plan_uneven *uneven; /* owned; NULL: a cross-section of the tree `id` */
};

struct plan_trials {
    const struct plan_evaluation *e;
    const struct topo_limits *limits;
    const struct plan_tree_search_opts *o;
    struct plan_tree_search_counts *counts;
    struct topo_tree **grouped; /* [n_grouped] the group closure, fewest groups first */
    int n_grouped, grouped_size;
    struct plan_trial *trials; /* [n_trials] */
    int n_trials, trials_size;
    struct map configs; /* topo_config_key() to the index of a trial */
    struct map
        groups;  /* process group to its trials in a row that were not the fastest */
    int fastest; /* the trial with the shortest first measurement; -1: none yet */
    uint64_t start_ns;
    int64_t stop_at; /* number of measurements at which the stage ends; 0: no limit */
    double stop_s;   /* wall time at which the stage ends, in seconds */
    bool spent;      /* the stage has used its budget */
};

/* Begin with the group closure of the fundamental tree, on half of the budget. The caller has
 * set e, limits, o and counts; plan_trials_close() is due after an error, too. */
MUST int plan_trials_open(struct plan_trials *s, const struct topo_tree *fundamental);
void plan_trials_close(struct plan_trials *s);

/* Begin a stage that may use this share of the remaining budget. */
void plan_trials_stage(struct plan_trials *s, double share);
/* Whether the stage has used its budget. */
bool plan_trials_spent(struct plan_trials *s);
/* An estimate of the number of measurements that the stage can still make. */
int64_t plan_trials_left(const struct plan_trials *s);
/* Seconds since plan_trials_open(). */
double plan_trials_wall_s(const struct plan_trials *s);

int plan_tree_groups(const struct topo_tree *t); /* number of levels made by group() */
/* A tree of the closure with nothing removed. */
struct plan_tree_id plan_tree_id_whole(const struct plan_trials *s, int grouped);
/* The tree itself; *out is owned by the caller, mem_free(). */
MUST int plan_tree_id_open(struct topo_tree **out, const struct plan_trials *s,
                           const struct plan_tree_id *id);

/* Find the trial of a configuration, a cross-section of the tree `id`, or make one. *trial is
 * its index. */
MUST int plan_trial_find(struct plan_trials *s, const struct topo_config *c,
                         const struct plan_tree_id *id, int *trial);
/* Measure a trial once more. *seconds is NAN if the budget is used up or the evaluator cannot
 * run the configuration. */
MUST int plan_trial_measure(struct plan_trials *s, int trial, const struct topo_config *c,
                            double *seconds);
/* The tree and the configuration of a trial, whatever made it; *out is owned by the caller,
 * mem_free(), also after an error. */
MUST int plan_trial_config(struct topo_config *c, struct topo_tree **out,
                           const struct plan_trials *s, const struct plan_trial *t);

/* The number of groups in the tree of a trial that the fundamental tree does not have. */
int plan_trial_groups(const struct plan_trials *s, const struct plan_trial *t);
/* The number of levels of the trial's tree that lost children. */
int plan_trial_removes(const struct plan_trials *s, const struct plan_trial *t);
/* For measure/compare.h: a simpler configuration has fewer groups, or as many and fewer
 * removes, or as many of both and fewer threads, or as many of all and fewer ranks. */
int64_t plan_trial_complexity(const struct plan_trials *s, const struct plan_trial *t);
/* Whether early stopping has discarded the trial's process group, or would have but for this
 * trial, which is the fastest: that one is not discarded. */
bool plan_trial_discarded(const struct plan_trials *s, int trial);

#endif
