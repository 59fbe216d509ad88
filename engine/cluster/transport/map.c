/* Shared memory without a copy: the sender maps the receiver's pool, and the prompt is computed in
 * the slot that was offered. What no transport can be faster than. */
#include "cluster/wire.h"

static int map_put(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                   const struct kv_slot *from, const struct cluster_piece *p)
{
    (void)fd, (void)shape, (void)p;
    return from->base == to->base
               ? OK
               : err_set(ERR_STATE,
                         "map: a prompt was computed in other memory than what "
                         "was offered");
}

const struct cluster_transport cluster_transport_map = {
    .name = "map",
    .help = "one host: the prompt is computed in the receiver's pool, nothing is copied",
    .in_place = true,
    .lend = cluster_pool_lend,
    .borrow = cluster_pool_borrow,
    .give_back = cluster_pool_give_back,
    .put = map_put};
