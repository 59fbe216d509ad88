/* plan/tree_search_parts.h - what the files of the search share; not for other modules.
 *
 * search.c walks the trees, search_random.c samples them instead, search_measure.c holds
 * what was measured and the budget, search_final.c chooses on fresh measurements and
 * search_explain.c says why.   Paper: Sandwich 5.2, 5.3.   Threads: one. */
#ifndef PLAN_TREE_SEARCH_PARTS_H
#define PLAN_TREE_SEARCH_PARTS_H

#include "base/map.h"
#include "plan/tree_search.h"

/* A tree in few bytes: trees of two kilobytes each would not fit for all that are seen. */
struct plan_tree_id {
    int grouped;                    /* index of the tree that group() made */
    uint16_t kept[TOPO_LEVELS_MAX]; /* what remove() left: the arity of each level */
};

/* A configuration and what was measured of it, whichever trees it is a cut of. */
struct plan_trial {
    uint64_t key;
    struct plan_tree_id from; /* the tree of the fewest transformations that gives it */
    int level;
    int n_groups, n_removes, n_threads; /* n_removes: levels that lost children */
    bool refused;                       /* by the evaluator */
    int n;                              /* measurements */
    double sum;                         /* of their seconds */
};

struct plan_trials {
    const struct plan_evaluation *e;
    const struct topo_limits *limits;
    const struct plan_tree_search_opts *o;
    struct plan_tree_search_counts *counts;
    struct topo_tree **grouped; /* [n_grouped] the group closure, fewest groups first */
    int n_grouped, grouped_size;
    struct plan_trial *entries;
    int n_entries, entries_size;
    struct map configs; /* topo_config_key to the index of an entry */
    uint64_t start_ns;
    int64_t stop_at; /* measurements at which the present stage ends; 0: open */
    double stop_s;   /* ... and seconds of wall time */
    bool spent;      /* the present stage ended so */
};

/* Fills the closure, or the fundamental tree alone. */
MUST int plan_trials_open(struct plan_trials *b, const struct topo_tree *fundamental,
                          bool group);
void plan_trials_close(struct plan_trials *b);
/* Whether the stage's budget is used up. */
bool plan_trials_spent(struct plan_trials *b);

/* The tree of a recipe; *out owned by the caller. */
MUST int plan_tree_id_tree(struct topo_tree **out, const struct plan_trials *b,
                           const struct plan_tree_id *r);
/* Nothing removed. */
struct plan_tree_id plan_tree_id_whole(const struct plan_trials *b, int grouped);
int plan_tree_groups(const struct topo_tree *t); /* levels of kind TOPO_GROUP */

/* The entry of a configuration, made where there is none; a recipe of fewer
 * transformations replaces the one known. `c` is a cut of r's tree. */
MUST int plan_trials_entry(struct plan_trials *b, const struct topo_config *c,
                           const struct plan_tree_id *r, int *entry, bool *is_new);
/* n more measurements of an entry, fewer when the budget or the evaluator says so; their
 * seconds are also written to x[0 ... *n_x) unless x is NULL. */
MUST int plan_trials_measure(struct plan_trials *b, int entry,
                             const struct topo_config *c, int n, double *x, int *n_x);
/* Mean seconds; INFINITY where nothing was measured. */
double plan_trial_mean(const struct plan_trial *e);
/* Fewer groups first, then fewer levels with removes, then fewer threads. */
int plan_trial_simpler(const struct plan_trial *a, const struct plan_trial *b);

/* Exploration: measures entries until nothing is left to try or the stage is spent. */
MUST int plan_tree_search_walk(struct plan_trials *b);
MUST int plan_tree_search_sample(struct plan_trials *b);

/* A candidate of the last stage, measured anew there. */
struct plan_candidate {
    int entry;
    struct topo_tree *tree; /* owned */
    struct topo_config config;
    double *x; /* [n] seconds, fresh; owned */
    int n;
    double mean, sd;
    bool ties;
};

struct plan_final {
    struct plan_candidate *v; /* [n] fastest first; owned */
    int n, chosen;
    int plain;         /* the best without groups; -1: none */
    int whole;         /* ... with all PUs and without groups; -1: none */
    double noise_frac; /* declared, or as seen if that is more */
    bool duelled;      /* a grouped winner had to beat v[plain] once more ... */
    bool latent;       /* ... and did */
    double gain;       /* ... by this fraction; NAN: no budget for it */
};
MUST int plan_tree_search_final(struct plan_final *out, struct plan_trials *b);
void plan_final_free(struct plan_final *f);

/* The reasoned answer; *text owned by the caller. */
MUST int plan_tree_search_explain(char **text, const struct plan_trials *b,
                                  const struct plan_final *f);

#endif
