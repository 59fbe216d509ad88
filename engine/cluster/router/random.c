/* Any machine, each with the same probability. */
#include "cluster/router.h"

static int choose(const struct cluster_choice *c)
{
    return (int)rng_below(c->rng, (uint64_t)c->n);
}

const struct cluster_router cluster_router_random = {
    .name = "random", .help = "any machine", .choose = choose};
