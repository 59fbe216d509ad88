/* placement/open.h - opening a model: its weights are packed by the threads of a team into pages on
 * the memory nodes of the threads that will read them, once for all phases.
 *   Paper: Sandwich 5.3.   Threads: one thread owns a model (the one that opened its team). */
#ifndef PLACEMENT_OPEN_H
#define PLACEMENT_OPEN_H

#include "format/format.h"
#include "model/model.h"

/* The threads that own the packed weights: those that decode, since they read all weights
 * for every token. Ranks and threads as in struct model_phase_opts. n_ranks 0: one rank of
 * the whole team. */
struct model_numa_owners {
    int n_ranks, n_threads;
    const int *threads;
    /* [threads of the team] the system's number of each thread's memory node, -1 where it
     * is unknown. NULL: all unknown. */
    const int *nodes;
};

struct model_opts {
    enum kern_type weight_type; /* the type to keep weights in; KERN_N_TYPES: as stored */
    enum kern_kv_type kv_type;
    enum kern_precision precision;
    /* Give a sequence the same bits for any batch, division of its prompt, threads, ranks
     * of each phase (1, 2, 3, 4, 6 or 8, no more than query heads) and changes of phase.
     * Needs KERN_EXACT. It is slower: kernels are batch-invariant, and sums over ranks add
     * the same parts in the same order for any number of ranks. */
    bool deterministic;
    /* All phases will have one rank, so that matrices need not be split along K and each thread
     * reads its part of one in a single run. Has no effect on a deterministic model. */
    bool one_rank;
    /* Ranks will be processes, so activations are placed in memory that fork() shares. Keys
     * and values must be, too (struct kv_pool_opts). See ranks/procs.h. */
    bool shared;
    int64_t max_step_tok; /* most tokens in one forward step */
    int64_t max_tok;      /* longest sequence (rotary tables); 0: the file's */
    /* Bytes that the caller will take for the model's steps in addition: keys and values, logits.
     * The model is not opened where all of it together does not fit in memory. */
    int64_t caller_bytes;
    struct model_numa_owners owners;
    void (*progress)(void *ctx, int64_t done_bytes, int64_t all_bytes); /* may be NULL */
    void *progress_ctx;
};

/* Pack `f`'s weights with the team's threads, in pages on the memory node of their owners.
 * The file is not needed afterwards. ERR_ARG: the team does not have these owners.
 * ERR_UNSUPPORTED: weight_type would lose precision. ERR_NOMEM: it does not fit in the memory
 * that this process may take (cpu_memory_get()), or there is none. */
MUST int model_open(struct model **out, const struct format_file *f,
                    struct par_team *team, const struct model_opts *o);
void model_close(struct model **m);

/* A report of the memory nodes that the packed weights are on, compared with the nodes of their
 * owners. The bytes of a row are the sum of its first four members. */
enum model_weight_kind { /* a matrix by its enum model_mat, or one of: */
                         MODEL_WEIGHT_EMBED = MODEL_N_MATS,
                         MODEL_WEIGHT_NORMS, /* and biases */
                         MODEL_N_WEIGHT_KINDS
};
struct model_numa_row {
    const char *name;        /* "qkv", ..., "embedding", "norms" */
    int64_t local_bytes;     /* in pages on the owner's node */
    int64_t elsewhere_bytes; /* on another */
    int64_t absent_bytes;    /* not in memory */
    int64_t shared_bytes;    /* read from all nodes, or from an unknown one */
    /* The part of the local and elsewhere bytes that is in large pages that owners on several nodes
     * share, and the part of these on another node than the owner's, which is unavoidable. */
    int64_t mixed_bytes, mixed_elsewhere_bytes;
};
struct model_numa_report {
    struct model_numa_row rows[MODEL_N_WEIGHT_KINDS];
    int n_nodes;         /* nodes that owners are on */
    int64_t bound_bytes; /* in pages that were bound to a node */
    const char *how;     /* how pages got their nodes, in words; lent */
};
/* Queries the node of every page, which takes a second for about 20 GB of small pages.
 * ERR_UNSUPPORTED: the kernel does not report it; all bytes then count as shared. */
MUST int model_numa_report_get(const struct model *m, struct model_numa_report *out);
/* Bind the pool's pages to the memory nodes of the owners that read their heads. Call it
 * with an empty pool, before its pages are touched. A kernel that refuses gives a warning.
 * ERR_STATE: the pool is in use. ERR_NOMEM. */
MUST int model_kv_bind(const struct model *m, struct kv_pool *pool);
/* Find the nodes that keys and values are on, as in a row of model_numa_report_get(). */
MUST int model_kv_numa_row(const struct model *m, struct kv_pool *pool,
                           struct model_numa_row *out);
#endif
