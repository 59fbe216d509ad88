/* One machine after the other. */
#include "cluster/router.h"

static int choose(const struct cluster_choice *c)
{
    return (int)((*c->n_choices)++ % (uint64_t)c->n);
}

const struct cluster_router cluster_router_round_robin = {
    .name = "round_robin", .help = "one machine after the other", .choose = choose};
