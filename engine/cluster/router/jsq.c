/* Join the shortest queue; the first of equals.   Paper: Splitwise IV-A. */
#include "cluster/router.h"

static int choose(const struct cluster_choice *c)
{
    int best = 0;

    for (int i = 1; i < c->n; i++)
        best = c->loads[i] < c->loads[best] ? i : best;
    return best;
}

const struct cluster_router cluster_router_jsq = {
    .name = "jsq", .help = "the smallest known load", .choose = choose};
