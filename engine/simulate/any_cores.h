/* simulate/any_cores.h - the best use of a machine whose parameters are known.
 *
 * A tree allows symmetric plans only: the same number of ranks and of cores on every memory
 * node, and what is left out is right-most. Here every set of cores is allowed, and another
 * number of ranks on each memory node. All ranks have equally many threads, since the engine
 * gives them equal work. With a price without noise this is what a search is judged by on
 * machines that its trees cannot express. Like exhaustive.h it uses nothing of the search.
 *   Threads: one. */
#ifndef SIMULATE_ANY_CORES_H
#define SIMULATE_ANY_CORES_H

#include "simulate/exhaustive.h"

/* The fastest plan found from `start`, never a slower one, by descent: not proven to be the
 * best. tests/simulate/test_any_cores.c states how close it is to all plans of small machines.
 *   out    tree, config (a cross-section of it) and seconds; tree owned by the caller,
 *          mem_free(); NULL on error
 *   start  lent; a configuration of the machine, such as the best of its trees
 *   price  as of simulate_exhaustive(); without noise */
MUST int simulate_any_cores(struct simulate_best *out, const struct topo_config *start,
                            const struct topo_limits *limits, simulate_price_fn price,
                            void *ctx);

#endif
