/* simulate/random_machine.h - random machines, with or without hidden structure.
 *
 * What a machine shows: packages, memory nodes, cores, perhaps SMT. What it hides is of one
 * kind. Groups and removes can express the tiled and nested kinds. The others break what the
 * search assumes: that the cores of a memory node are alike, that clusters tile it and do not
 * overlap, and that memory nodes and links are equal. A search that comes close to the best
 * on many such machines, and claims nothing where there is nothing, was not fitted to one.
 *   Paper: Sandwich 5.2 (latent shared structure; assumptions A.1, A.2).   Threads: any. */
#ifndef SIMULATE_RANDOM_MACHINE_H
#define SIMULATE_RANDOM_MACHINE_H

#include "simulate/contention.h"

enum simulate_hidden {
    SIMULATE_TILED,     /* clusters of equal size: neighbours, or every n-th core */
    SIMULATE_UNTILED,   /* clusters of a size that does not divide the cores of a node */
    SIMULATE_UNEQUAL,   /* clusters of two sizes that carry the same */
    SIMULATE_NESTED,    /* clusters, and larger clusters of them */
    SIMULATE_CROSSED,   /* clusters of neighbours, and clusters of every n-th core */
    SIMULATE_SLOW_NODE, /* one memory node is slower; which one is random */
    SIMULATE_LINKS,     /* every link between packages has a bandwidth of its own in each
                           direction; for memory that is interleaved over all nodes */
    SIMULATE_NOISY, /* tiled; one measurement varies by 0.5 to 6 %, with larger spikes */
    SIMULATE_N_HIDDEN,
};
/* "tiled", "untiled" ...; ends with NULL. */
extern const char *const simulate_hidden_names[];

struct simulate_random_opts {
    enum simulate_hidden kind;
    double
        strength;  /* 0 ... 0.9: what is hidden carries less by this fraction: a cluster,
                        than its cores could draw; a node or link, than the others. 0:
                        there are no clusters, and all nodes and links are equal */
    int max_cores; /* of a memory node; 0: up to 32 */
    uint64_t seed; /* the visible machine does not depend on `strength` */
};

/* One or two packages of one or two memory nodes of 8, 12, 16, 24 or 32 cores. A slow node
 * is one of at least two, links need two packages. One measurement varies by 1.5 % unless
 * the kind is noisy.
 *   m  owned by the caller, topo_machine_close()
 * ERR_ARG: a strength out of range, or max_cores below 8. */
MUST int simulate_random_machine(struct topo_machine **m,
                                 struct simulate_machine_params *params,
                                 const struct simulate_random_opts *o);

/* A decode step of a model of some billions of parameters: so large that bandwidth decides
 * and barriers, which more ranks also save where nothing is hidden, do not. */
void simulate_random_workload(struct simulate_workload *out, uint64_t seed);

#endif
