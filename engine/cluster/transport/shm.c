/* Shared memory: the sender maps the receiver's pool and copies into its slots, past the caches.
 * The message that follows a piece is read after the piece was written. Paper: Splitwise IV-C,
 * without MSCCL++. */
#include "base/mem.h"
#include "cluster/wire.h"
#include "kv/slot_runs.h"

static int shm_put(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                   const struct kv_slot *from, const struct cluster_piece *p)
{
    (void)fd;
    kv_slot_copy(to, from, shape, p->layer, p->lo, p->hi, mem_copy_stream);
    return OK;
}

const struct cluster_transport cluster_transport_shm = {
    .name = "shm",
    .help = "one host: the sender maps the receiver's pool and copies into it",
    .lend = cluster_pool_lend,
    .borrow = cluster_pool_borrow,
    .give_back = cluster_pool_give_back,
    .put = shm_put};
