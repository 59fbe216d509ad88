/* simulate/random_machine.h - random machines with something to find, or nothing.
 *
 * What a machine shows: packages, memory nodes, cores, perhaps SMT. What it hides: that
 * the cores of a memory node share bandwidth in clusters. A search that finds the clusters of
 * many such machines, and none where there are none, was not fitted to one of them.
 *   Paper: Sandwich 5.2 (latent shared structure).   Threads: any. */
#ifndef SIMULATE_RANDOM_MACHINE_H
#define SIMULATE_RANDOM_MACHINE_H

#include "simulate/contention.h"

struct simulate_random_opts {
    double strength; /* 0 ... 0.9: a cluster carries less than its cores could draw
                        by this fraction; 0: there are no clusters */
    int max_cores;   /* of a memory node; 0: up to 32 */
    uint64_t seed;   /* the visible machine does not depend on `strength` */
};

/* One or two packages of one or two memory nodes of 8, 12, 16, 24 or 32 cores; a cluster
 * is `of` neighbouring cores or every (cores / of)-th one. One measurement varies by
 * 1.5 %.
 *   m  owned by the caller, topo_machine_close()
 * ERR_ARG: a strength out of range, or max_cores below 8. */
MUST int simulate_random_machine(struct topo_machine **m,
                                 struct simulate_machine_params *params,
                                 const struct simulate_random_opts *o);

/* A decode step of a model of some billions of parameters: so large that bandwidth decides
 * and barriers, which more ranks also save where nothing is hidden, do not. */
void simulate_random_workload(struct simulate_workload *out, uint64_t seed);

#endif
