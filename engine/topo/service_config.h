/* topo/service_config.h - service configurations: how a phase uses the CPUs of a tree.
 *
 * sandwich-config: each level of a TopoTree is a horizontal cross-section; its nodes are
 * the ranks of a tensor-parallel group, the PUs below a node are the rank's threads.
 * Which numbers of ranks the model's operators allow is checked here.
 * Paper: Sandwich 5.3, Fig. 6.   Threads: any. */
#ifndef TOPO_SERVICE_CONFIG_H
#define TOPO_SERVICE_CONFIG_H

#include "topo/topotree.h"

enum topo_phase { TOPO_PREFILL, TOPO_DECODE };

/* Limits on dividing a model among ranks. All 0: none. */
struct topo_limits {
    int max_ranks; /* 0: any number */
    int n_heads, n_kv_heads;
    int n_ffn_units; /* units of the feed-forward layer that a rank takes whole */
    bool strict; /* the paper's rule: the ranks divide the heads and the KV heads. Else
                        ranks may be uneven (whole KV-head groups, whole units); beyond the
                        KV heads they take whole query heads, beyond those several ranks
                        share a query head's sequence */
    /* NULL, or: can `model`, which is lent, be divided among n_ranks? ERR_UNSUPPORTED says why
     * it cannot. */
    int (*check)(const void *model, int n_ranks);
    const void *model;
};

/* A cross-section. Plain data; borrows from the tree it was cut from. */
struct topo_config {
    const struct topo_tree *tree;
    int level;     /* of the cross-section */
    int n_ranks;   /* nodes there */
    int n_threads; /* of each rank */
    /* Rank r computes on tree->pus[r * n_threads ... (r + 1) * n_threads). */

    /* The largest rank's share of the work times n_ranks: 1 is even. */
    double attention_imbalance, ffn_imbalance;
    int n_sequence_splits; /* the most ranks that share one query head's sequence (merged
                              by log-sum-exp); 1: none */
};

/* Cut `t` at a level. ERR_UNSUPPORTED: the model's operators do not allow that many ranks;
 * the message says which limit. */
MUST int topo_config_cut(struct topo_config *out, const struct topo_tree *t, int level,
                         const struct topo_limits *limits);

/* A hash of the ranks as sorted sets of PUs. Two configurations with equal keys are the same
 * up to the numbering of equal ranks. */
uint64_t topo_config_key(const struct topo_config *c);

/* The memory nodes (indices into machine->nodes, ascending) of rank r's PUs; returns
 * how many there are, of which at most `max` are written. */
int topo_config_nodes(const struct topo_config *c, int rank, int *nodes, int max);

/* "8 ranks x 18 threads, one memory node each"; n >= 96. */
void topo_config_print(const struct topo_config *c, char *out, size_t n);

#endif
