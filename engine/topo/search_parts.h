/* topo/search_parts.h - what the files of the search share; not for other modules.
 *
 * search.c walks the trees, search_random.c samples them instead, search_measure.c holds
 * what was measured and the budget, search_final.c chooses on fresh measurements and
 * search_explain.c says why.   Paper: Sandwich 5.2, 5.3.   Threads: one. */
#ifndef TOPO_SEARCH_PARTS_H
#define TOPO_SEARCH_PARTS_H

#include "topo/search.h"

/* From 64-bit hashes to numbers. */
struct topo_map {
    uint64_t *keys; /* 0: a free place */
    int64_t *values;
    size_t n, size; /* size: 0 or a power of two */
};
bool topo_map_find(const struct topo_map *m, uint64_t key, int64_t *value);
MUST int topo_map_put(struct topo_map *m, uint64_t key, int64_t value);
void topo_map_fini(struct topo_map *m);

/* A tree in few bytes: trees of two kilobytes each would not fit for all that are seen. */
struct topo_recipe {
    int grouped;                    /* index of the tree that group() made */
    uint16_t kept[TOPO_LEVELS_MAX]; /* what remove() left: the arity of each level */
};

/* A configuration and what was measured of it, whichever trees it is a cut of. */
struct topo_entry {
    uint64_t key;
    struct topo_recipe from; /* the tree of the fewest transformations that gives it */
    int level;
    int n_groups, n_removes, n_threads; /* n_removes: levels that lost children */
    bool refused;                       /* by the evaluator */
    int n;                              /* measurements */
    double sum;                         /* of their seconds */
};

struct topo_bench {
    const struct topo_evaluator *e;
    const struct topo_limits *limits;
    const struct topo_search_opts *o;
    struct topo_search_counts *counts;
    struct topo_tree **grouped; /* [n_grouped] the group closure, fewest groups first */
    int n_grouped, grouped_size;
    struct topo_entry *entries;
    int n_entries, entries_size;
    struct topo_map configs; /* topo_config_key to the index of an entry */
    uint64_t start_ns;
    int64_t stop_at; /* measurements at which the present stage ends; 0: open */
    double stop_s;   /* ... and seconds of wall time */
    bool spent;      /* the present stage ended so */
};

/* Fills the closure, or the fundamental tree alone. */
MUST int topo_bench_open(struct topo_bench *b, const struct topo_tree *fundamental,
                         bool group);
void topo_bench_close(struct topo_bench *b);
/* Whether the stage's budget is used up. */
bool topo_bench_spent(struct topo_bench *b);

/* The tree of a recipe; *out owned by the caller. */
MUST int topo_recipe_tree(struct topo_tree **out, const struct topo_bench *b,
                          const struct topo_recipe *r);
/* Nothing removed. */
struct topo_recipe topo_recipe_whole(const struct topo_bench *b, int grouped);
int topo_tree_groups(const struct topo_tree *t); /* levels of kind TOPO_GROUP */

/* The entry of a configuration, made where there is none; a recipe of fewer
 * transformations replaces the one known. `c` is a cut of r's tree. */
MUST int topo_bench_entry(struct topo_bench *b, const struct topo_config *c,
                          const struct topo_recipe *r, int *entry, bool *is_new);
/* n more measurements of an entry, fewer when the budget or the evaluator says so; their
 * seconds are also written to x[0 ... *n_x) unless x is NULL. */
MUST int topo_bench_measure(struct topo_bench *b, int entry, const struct topo_config *c,
                            int n, double *x, int *n_x);
/* Mean seconds; INFINITY where nothing was measured. */
double topo_entry_mean(const struct topo_entry *e);
/* Fewer groups first, then fewer levels with removes, then fewer threads. */
int topo_entry_simpler(const struct topo_entry *a, const struct topo_entry *b);

/* Exploration: measures entries until nothing is left to try or the stage is spent. */
MUST int topo_search_walk(struct topo_bench *b);
MUST int topo_search_sample(struct topo_bench *b);

/* A candidate of the last stage, measured anew there. */
struct topo_finalist {
    int entry;
    struct topo_tree *tree; /* owned */
    struct topo_config config;
    double *x; /* [n] seconds, fresh; owned */
    int n;
    double mean, sd;
    bool ties;
};

struct topo_final {
    struct topo_finalist *v; /* [n] fastest first; owned */
    int n, chosen;
    int plain;         /* the best without groups; -1: none */
    int whole;         /* ... with all PUs and without groups; -1: none */
    double noise_frac; /* declared, or as seen if that is more */
    bool duelled;      /* a grouped winner had to beat v[plain] once more ... */
    bool latent;       /* ... and did */
    double gain;       /* ... by this fraction; NAN: no budget for it */
};
MUST int topo_search_final(struct topo_final *out, struct topo_bench *b);
void topo_final_free(struct topo_final *f);

/* The reasoned answer; *text owned by the caller. */
MUST int topo_search_explain(char **text, const struct topo_bench *b,
                             const struct topo_final *f);

#endif
