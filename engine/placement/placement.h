/* placement/placement.h - which thread owns which bytes of the packed weights, and on which
 * memory node their pages are.
 *
 * Owners are the threads that decode (struct model_numa_owners): thread t of rank r is
 * owner r * n_threads + t. An owner's piece of a matrix is the part that its kernel reads
 * when it multiplies one row. Bytes that several ranks read (more ranks than KV groups)
 * belong to the first of these ranks. A domain is all owners on one memory node. With a
 * single domain each matrix is one piece.
 * A page is bound to its domain's node before it is first touched, and threads on that
 * node pack the weights in it. A page that several domains share is bound to the node of
 * the domain with most bytes in it.   Paper: Sandwich 5.3.
 * Threads: written by the thread that opens the model, then read by all. */
#ifndef PLACEMENT_PLACEMENT_H
#define PLACEMENT_PLACEMENT_H

#include "model/shard.h"
#include "placement/open.h"
#include "placement/page_map.h"

struct model_placement {
    int n_ranks, n_threads, n_owners, n_domains;
    struct model_tp_shard *shards; /* [n_ranks] */
    int *domain;                   /* [n_owners] the domain of each owner */
    int *node;                     /* [n_domains] its memory node; -1: not known */
    /* Each thread of the team packs share i of n of the bytes of its domain. n = 0:
     * nothing. */
    struct model_helper {
        int domain, i, n;
    } * helpers;        /* [threads of the team] */
    bool multi_node;    /* the team is on several nodes */
    size_t bound_bytes; /* in pages that were bound to a node */
    char note[256];     /* how pages got their nodes, in words */
};

/* Set m->placement, owned by m. ERR_ARG, ERR_LIMIT: the team does not have these owners.
 * ERR_NOMEM. */
MUST int model_placement_open(struct model *m, const struct model_numa_owners *o);
void model_placement_close(struct model_placement **p);
/* Bind the pages of the weights to memory nodes and decide which threads pack them. Call
 * it when the weights have addresses but are not yet touched. If the operating system
 * refuses to bind, that is a warning and no error. ERR_NOMEM. */
MUST int model_placement_bind(struct model *m);

/* A piece of a matrix. The pieces of all owners cover it, each byte once. */
struct model_piece {
    struct kern_mat w;  /* the view that the owner's rank has of the matrix */
    int64_t k_lo, p0;   /* where the view begins in the matrix: row of K, panel */
    int64_t p_lo, p_hi; /* the piece: panels [p_lo, p_hi) of the view */
    int domain;
};
/* The number of pieces of every matrix. */
static inline int model_n_pieces(const struct model_placement *p)
{
    return p->n_domains == 1 ? 1 : p->n_owners;
}
/* Piece i of a layer's matrix, its mat-th, or of the head, whatever the layer. It may be
 * empty. */
#define MODEL_OF_HEAD (-1)
void model_piece_of(const struct model *m, int layer, int mat, int i,
                    struct model_piece *out);
/* Set [*lo, *hi) to the rows of piece i of the embedding. Returns the piece's domain. */
int model_embed_piece(const struct model *m, int i, int64_t *lo, int64_t *hi);

/* Call `fn` for each contiguous run of bytes of one kind of weights, with the domain that
 * reads the run (-1: all domains). `layer` is used only for kinds that every layer
 * has. */
typedef void (*model_run_fn)(void *ctx, const void *p, size_t bytes, int domain);
void model_each_run(const struct model *m, enum model_weight_kind what, int layer,
                    model_run_fn fn, void *ctx);
/* The number of layers that have this kind of weights: 1 for the head and embedding. */
static inline int model_weight_kind_layers(const struct model *m,
                                           enum model_weight_kind what)
{
    return what == (int)MODEL_MAT_HEAD || what == MODEL_WEIGHT_EMBED ? 1 : m->c.n_layers;
}

/* The map of all weights of m by domain. The caller frees it with
 * model_page_map_fini(). */
MUST int model_page_map_of(const struct model *m, struct model_page_map *out);

/* ---- reporting where pages are ---- */

/* Adds up the bytes of runs by the memory node that their pages are on. */
struct model_numa_query {
    const int *node;                  /* the memory node of each domain */
    const struct model_page_map *map; /* NULL: there is one domain, so no page is mixed */
    struct model_numa_row *row;       /* the bytes are added to this row */
    int rc;                           /* the first error */
};

#endif
