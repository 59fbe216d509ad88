/* A stream socket: the bytes of a piece follow its message, head by head in canonical order, so
 * that the two ends need not have the same layout. */
#include <stddef.h>

#include "cluster/wire.h"
#include "kv/slot_runs.h"

static int each_run(int fd, const struct kv_shape *shape, const struct kv_slot *slot,
                    const struct cluster_piece *p, bool writes)
{
    for (int head = 0; head < shape->n_kv_heads; head++) {
        struct kv_slot_runs runs;
        struct kv_run r;

        kv_slot_runs(&runs, slot, shape->vec_bytes, p->layer, head, p->lo, p->hi);
        while (kv_slot_runs_next(&runs, &r))
            TRY(writes ? cluster_wire_write(fd, r.at, r.bytes)
                       : cluster_wire_read(fd, r.at, r.bytes));
    }
    return OK;
}

static int socket_put(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                      const struct kv_slot *from, const struct cluster_piece *p)
{
    (void)to;
    return each_run(fd, shape, from, p, true);
}

static int socket_get(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                      const struct cluster_piece *p)
{
    return each_run(fd, shape, to, p, false);
}

const struct cluster_transport cluster_transport_socket = {
    .name = "socket",
    .help = "any two hosts: bytes through a stream socket",
    .put = socket_put,
    .get = socket_get};
