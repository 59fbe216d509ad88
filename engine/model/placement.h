/* model/placement.h - which bytes of the packed weights are whose, and on which memory
 * node their pages lie.
 *
 * Owners are the threads that decode (struct model_numa_owners): thread t of rank r is owner
 * r * n_threads + t. An owner's piece of a matrix is what its kernel reads of it when it
 * multiplies one row; a byte that several ranks read (more ranks than KV groups) is the
 * first one's. Owners on one node are a domain: memory knows no more than that, so where
 * there is one domain only, a matrix is one piece.
 * Pages are bound to their domain's node before they are first touched, and the threads on
 * that node pack what belongs there. A page that pieces of several domains share goes to
 * who has most of it.   Paper: Sandwich 5.3.
 * Threads: made by the one that opens the model, then read by all. */
#ifndef MODEL_PLACEMENT_H
#define MODEL_PLACEMENT_H

#include "model/impl.h"

struct model_placement {
    int n_ranks, n_threads, n_owners, n_domains;
    struct model_tp_shard *shards; /* [n_ranks] */
    int *domain;                   /* [n_owners] */
    int *node;                     /* [n_domains] -1: not known */
    /* What a thread of the team packs: share i of n of its domain's; n = 0: nothing. */
    struct model_helper {
        int domain, i, n;
    } * helpers;     /* [threads of the team] */
    bool multi_node; /* the team is on several nodes: which one has a page matters */
    size_t bound_bytes;
    char note[256]; /* how pages got their nodes */
};

/* ERR_ARG, ERR_LIMIT: the team has no such owners. */
MUST int model_placement_open(struct model *m, const struct model_numa_owners *o);
void model_placement_close(struct model_placement **p);
/* Bind the pages of the weights, which have their places and were not touched, and decide
 * who packs them. A kernel that refuses is a warning. ERR_NOMEM. */
MUST int model_placement_bind(struct model *m);

/* A piece of a matrix; the pieces of all owners are all of it, each byte once. */
struct model_piece {
    struct kern_mat w;  /* the rank's rows: a view */
    int64_t k_lo, p0;   /* row and panel of the matrix that are the view's first */
    int64_t p_lo, p_hi; /* panels of the view */
    int domain;
};
/* How many pieces a matrix has. */
int model_n_pieces(const struct model_placement *p);
/* Piece i of a layer's matrix (or of the head); may be empty. */
void model_piece_of(const struct model *m, int layer, enum model_mat which, int i,
                    struct model_piece *out);
/* The same of the embedding: rows [lo, hi); returns the domain. */
int model_embed_piece(const struct model *m, int i, int64_t *lo, int64_t *hi);

/* Runs of bytes of a kind of weights (of one layer, where it has a part in each), and their
 * domain; -1: read by all domains. */
typedef void (*model_run_fn)(void *ctx, const void *p, size_t bytes, int domain);
void model_each_run(const struct model *m, enum model_place what, int layer,
                    model_run_fn fn, void *ctx);
/* How many layers a kind of weights has a part in: 1 for the head and the embedding. */
static inline int model_place_layers(const struct model *m, enum model_place what)
{
    return what == (int)MODEL_MAT_HEAD || what == MODEL_PLACE_EMBED ? 1 : m->c.n_layers;
}

/* ---- pages of several nodes ---- */

/* A large page is 2 MiB wherever we bind: smaller ones would cost more in translations
 * than a neighbour's share of a page costs in distance. */
#define MODEL_LARGE_PAGE ((size_t)2 << 20)

/* How many bytes of each page of a mapping belong to each of n_nodes. */
struct model_page_map {
    char *base; /* of the mapping, on a large page */
    size_t n_pages;
    int n_nodes;
    uint32_t *bytes; /* [n_pages, n_nodes] */
};
MUST int model_page_map_init(struct model_page_map *m, void *base, size_t bytes,
                             int n_nodes);
void model_page_map_fini(struct model_page_map *m);
void model_page_map_add(struct model_page_map *m, size_t offset, size_t bytes, int node);
/* A model_run_fn: adds what is one domain's. ctx: the map. */
void model_page_map_run(void *map, const void *p, size_t bytes, int domain);
bool model_page_mixed(const struct model_page_map *m, size_t page);
/* Of all weights of m, by domain; the caller's, model_page_map_fini(). */
MUST int model_page_map_of(const struct model *m, struct model_page_map *out);

/* The map as runs of pages that go to one node, in order of their offset; pages of nobody
 * are in none. Of nodes with equal bytes in a page, the one that has got fewest so far. */
struct model_page_run {
    size_t offset, bytes;
    int node;
};
/* *out: [*n], the caller's, mem_free(). */
MUST int model_page_runs(const struct model_page_map *m, struct model_page_run **out,
                         size_t *n);

/* Ask for these runs on node[of the run's], -1: on none; *bound_bytes: how many were. As
 * mem_prefer_node(). */
MUST int model_page_map_bind(const struct model_page_map *m, const int *node,
                             size_t *bound_bytes);

/* ---- afterwards ---- */

/* Where the pages of runs are, added up in a row. */
struct model_numa_query {
    const int *node;                  /* of each domain */
    const struct model_page_map *map; /* NULL: one domain, nothing is mixed */
    struct model_numa_row *row;
    int rc; /* of the first that could not be told */
};
/* A model_run_fn. ctx: the struct. */
void model_numa_row_add(void *look, const void *p, size_t bytes, int domain);

#endif
