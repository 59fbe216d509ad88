/* plan/tree_search_parts.h - what the files of the tree search share; not for others.
 *
 * tree_search.c keeps the budget and the trials, tree_search_explore.c visits trees,
 * tree_search_choose.c decides on fresh measurements, tree_search_explain.c says why.
 * Paper: Sandwich 5.2, 5.3.   Threads: one. */
#ifndef PLAN_TREE_SEARCH_PARTS_H
#define PLAN_TREE_SEARCH_PARTS_H

#include "base/map.h"
#include "plan/tree_search.h"

/* A tree in few bytes: which tree of the group closure, and what remove() left of it. */
struct plan_tree_id {
    int grouped;                    /* index into plan_search.grouped */
    uint16_t kept[TOPO_LEVELS_MAX]; /* the arity of each level */
};

/* A configuration and what is known of its time, whichever trees it is a cut of. */
struct plan_trial {
    struct plan_tree_id id; /* a tree of the fewest groups that gives it */
    int level;              /* of the cross-section */
    int n_threads;          /* of all ranks together */
    bool refused;           /* by the evaluator */
    int n;                  /* measurements */
    double seconds;         /* the first of them; INFINITY before */
};

struct plan_search {
    const struct plan_evaluation *e;
    const struct topo_limits *limits;
    const struct plan_tree_search_opts *o;
    struct plan_tree_search_counts *counts;
    struct topo_tree **grouped; /* [n_grouped] the group closure, fewest groups first */
    int n_grouped, grouped_size;
    struct plan_trial *trials; /* [n_trials] */
    int n_trials, trials_size;
    struct map configs; /* topo_config_key() to the index of a trial */
    uint64_t start_ns;
    int64_t stop_at; /* measurements at which the present stage ends; 0: never */
    double stop_s;   /* ... and seconds of wall time */
    bool spent;      /* the present stage has used its budget */
};

/* Let the present stage use this share of what is left of the budget. */
void plan_search_stage(struct plan_search *s, double share);
/* Whether it is used up. */
bool plan_search_spent(struct plan_search *s);
/* About how many measurements it still allows. */
int64_t plan_search_left(const struct plan_search *s);

int plan_tree_groups(const struct topo_tree *t); /* levels made by group() */
/* The groups that the tree of a trial has and the fundamental one has not. */
int plan_trial_groups(const struct plan_search *s, const struct plan_trial *t);
/* Levels of it that lost children. */
int plan_trial_removes(const struct plan_search *s, const struct plan_trial *t);
/* < 0: `a` is the simpler one: fewer groups, then fewer removes, then fewer threads. */
int plan_trial_simpler(const struct plan_search *s, const struct plan_trial *a,
                       const struct plan_trial *b);

/* A tree of the closure with nothing removed. */
struct plan_tree_id plan_tree_id_whole(const struct plan_search *s, int grouped);
/* The tree itself; *out is owned by the caller, mem_free(). */
MUST int plan_tree_id_open(struct topo_tree **out, const struct plan_search *s,
                           const struct plan_tree_id *id);

/* The trial of a configuration, which is a cut of id's tree; made where there is none.
 * *trial is its index. */
MUST int plan_trial_find(struct plan_search *s, const struct topo_config *c,
                         const struct plan_tree_id *id, int *trial);
/* Measure it once more. *seconds is NAN where the budget or the evaluator refuses. */
MUST int plan_trial_measure(struct plan_search *s, int trial, const struct topo_config *c,
                            double *seconds);

/* Measure trees until there is nothing left to try or the stage has ended. */
MUST int plan_search_explore(struct plan_search *s);

/* One of the best, as fresh measurements have it. */
struct plan_candidate {
    int trial;
    struct topo_tree *tree; /* owned */
    struct topo_config config;
    double seconds, lo, hi; /* estimate and 95 % interval of n fresh measurements; where
                               the budget allowed none, of the trial, without interval */
    int n;
    bool ties; /* the fastest is not surely faster */
};

struct plan_decision {
    struct plan_candidate *v; /* [n] fastest first; owned */
    int n, chosen;
    int plain;     /* the fastest without groups; -1: none */
    int whole;     /* ... and with all PUs; -1: none */
    bool retested; /* the winner had groups and was compared once more ... */
    double gain;   /* ... with those without: surely faster by this fraction; else 0 */
    bool latent;   /* and that is so much that a level must be there */
};
MUST int plan_search_choose(struct plan_decision *out, struct plan_search *s);
void plan_decision_free(struct plan_decision *d);

/* The reasoned answer; *text is owned by the caller, mem_free(). */
MUST int plan_search_explain(char **text, const struct plan_search *s,
                             const struct plan_decision *d);

#endif
