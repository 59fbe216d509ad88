/* model/placement.h - which thread owns which bytes of the packed weights, and on which
 * memory node their pages are.
 *
 * Owners are the threads that decode (struct model_numa_owners): thread t of rank r is owner
 * r * n_threads + t. An owner's piece of a matrix is what its kernel reads of it when it
 * multiplies one row. A byte that several ranks read (more ranks than KV groups) belongs to
 * the first of them. The owners on one node are a domain. With one domain a matrix is one
 * piece.
 * Pages are bound to their domain's node before they are first touched, and the threads on
 * that node pack what belongs there. A page that several domains share goes to
 * the one with most bytes in it.   Paper: Sandwich 5.3.
 * Threads: written by the one that opens the model, then read by all. */
#ifndef MODEL_PLACEMENT_H
#define MODEL_PLACEMENT_H

#include "model/impl.h"

struct model_placement {
    int n_ranks, n_threads, n_owners, n_domains;
    struct model_tp_shard *shards; /* [n_ranks] */
    int *domain;                   /* [n_owners] */
    int *node;                     /* [n_domains] -1: not known */
    /* What a thread of the team packs: share i of n of its domain; n = 0: nothing. */
    struct model_helper {
        int domain, i, n;
    } * helpers;     /* [threads of the team] */
    bool multi_node; /* the team is on several nodes */
    size_t bound_bytes;
    char note[256]; /* how pages got their nodes */
};

/* ERR_ARG, ERR_LIMIT: the team does not have these owners. */
MUST int model_placement_open(struct model *m, const struct model_numa_owners *o);
void model_placement_close(struct model_placement **p);
/* Bind the pages of the weights, which are laid out and not yet touched, and decide which
 * threads pack them. A kernel that refuses gives a warning. ERR_NOMEM. */
MUST int model_placement_bind(struct model *m);

/* A piece of a matrix. The pieces of all owners cover it, each byte once. */
struct model_piece {
    struct kern_mat w;  /* a view of the rank's rows */
    int64_t k_lo, p0;   /* first row and panel of the view in the matrix */
    int64_t p_lo, p_hi; /* panels of the view */
    int domain;
};
/* How many pieces a matrix has. */
int model_n_pieces(const struct model_placement *p);
/* Piece i of a layer's matrix (or of the head); may be empty. */
void model_piece_of(const struct model *m, int layer, enum model_mat which, int i,
                    struct model_piece *out);
/* Piece i of the embedding: rows [lo, hi). Returns its domain. */
int model_embed_piece(const struct model *m, int i, int64_t *lo, int64_t *hi);

/* Calls `fn` for each run of bytes of one kind of weights, with the domain that reads it
 * (-1: all domains). `layer` matters only for kinds that every layer has. */
typedef void (*model_run_fn)(void *ctx, const void *p, size_t bytes, int domain);
void model_each_run(const struct model *m, enum model_weight_kind what, int layer,
                    model_run_fn fn, void *ctx);
/* The number of layers that have this kind of weights: 1 for the head and embedding. */
static inline int model_weight_kind_layers(const struct model *m,
                                           enum model_weight_kind what)
{
    return what == (int)MODEL_MAT_HEAD || what == MODEL_WEIGHT_EMBED ? 1 : m->c.n_layers;
}

/* ---- pages of several nodes ---- */

/* Pages are bound in units of 2 MiB. Smaller pages would cost more in address translation
 * than a page shared by two domains costs in remote reads. */
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
/* A model_run_fn that adds the runs of a single domain. ctx: the map. */
void model_page_map_run(void *map, const void *p, size_t bytes, int domain);
bool model_page_mixed(const struct model_page_map *m, size_t page);
/* The map of all weights of m by domain. The caller frees it with model_page_map_fini(). */
MUST int model_page_map_of(const struct model *m, struct model_page_map *out);

/* The map as runs of pages that go to one node, in order of their offset. Pages without
 * owner are in no run. Among nodes with equal bytes in a page, the one with fewest pages so
 * far gets it. */
struct model_page_run {
    size_t offset, bytes;
    int node;
};
/* *out: [*n], freed by the caller with mem_free(). */
MUST int model_page_runs(const struct model_page_map *m, struct model_page_run **out,
                         size_t *n);

/* Bind each run to node[run.node] (-1: not at all), as mem_prefer_node() does. *bound_bytes:
 * the number of bytes that were bound. */
MUST int model_page_map_bind(const struct model_page_map *m, const int *node,
                             size_t *bound_bytes);

/* ---- afterwards ---- */

/* A query of where the pages of runs are; the bytes are added to a row. */
struct model_numa_query {
    const int *node;                  /* of each domain */
    const struct model_page_map *map; /* NULL: one domain, nothing is mixed */
    struct model_numa_row *row;
    int rc; /* the first error */
};
/* A model_run_fn that adds a run to the row. ctx: the struct. */
void model_numa_row_add(void *query, const void *p, size_t bytes, int domain);

#endif
