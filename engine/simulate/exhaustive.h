/* simulate/exhaustive.h - the fastest configuration, by trying all of them with a price
 * without noise. Searches are judged by it. Nothing is pruned and nothing of the search
 * is used. Threads: one. */
#ifndef SIMULATE_EXHAUSTIVE_H
#define SIMULATE_EXHAUSTIVE_H

#include "topo/service_config.h"

struct simulate_best {
    struct topo_tree *tree; /* owned by the caller, mem_free() */
    struct topo_config config;
    double seconds;
    int64_t n_grouped; /* trees of the group closure */
    int64_t n_trees;   /* ... and of all removes of those */
    int64_t n_configs; /* different configurations, each priced once */
    int64_t n_refused; /* cross-sections that the operators or `price` do not allow */
};

/* The seconds of a configuration; ERR_UNSUPPORTED: it cannot be run and is passed over. */
typedef int (*simulate_price_fn)(void *ctx, const struct topo_config *c, int repeat,
                                 double *seconds);

/* The fastest of all cross-sections of all removes of all groupings (`group` false: of the
 * fundamental tree alone). `limits` may be NULL. ERR_UNSUPPORTED: there is none. */
MUST int simulate_exhaustive(struct simulate_best *out,
                             const struct topo_tree *fundamental,
                             const struct topo_limits *limits, simulate_price_fn price,
                             void *ctx, bool group);

#endif
