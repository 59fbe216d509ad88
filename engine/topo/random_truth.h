/* topo/random_truth.h - random machines with something to find, or nothing.
 *
 * What a machine shows: packages, memory nodes, cores, perhaps SMT. What it hides: that
 * the cores of a memory node share ports in clusters. A search that finds the clusters of
 * many such machines, and none where there are none, was not fitted to one of them.
 *   Paper: Sandwich 5.2 (latent shared structure).   Threads: any. */
#ifndef TOPO_RANDOM_TRUTH_H
#define TOPO_RANDOM_TRUTH_H

#include "topo/contention.h"

struct topo_random_opts {
    double strength; /* 0 ... 0.9: a cluster's port carries less than its cores could draw
                        by this fraction; 0: there are no clusters */
    int max_cores;   /* of a memory node; 0: up to 32 */
    uint64_t seed;   /* the visible machine does not depend on `strength` */
};

/* One or two packages of one or two memory nodes of 8, 12, 16, 24 or 32 cores; a cluster
 * is `of` neighbouring cores or every (cores / of)-th one. One measurement varies by
 * 1.5 %.
 *   m  owned by the caller, topo_machine_close()
 * ERR_ARG: a strength out of range, or max_cores below 8. */
MUST int topo_random_machine(struct topo_machine **m, struct topo_truth *truth,
                             const struct topo_random_opts *o);

/* A decode step of a model of some billions of parameters: so large that bandwidth decides
 * and barriers, which more ranks also save where nothing is hidden, do not. */
void topo_random_works(struct topo_works *out, uint64_t seed);

#endif
