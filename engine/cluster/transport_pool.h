/* cluster/transport_pool.h - a pool of keys and values that the other end of a connection maps: the
 * file goes over the socket, which must be a Unix one.   Threads: any. */
#ifndef CLUSTER_TRANSPORT_POOL_H
#define CLUSTER_TRANSPORT_POOL_H

#include "cluster/transport.h"

/* Members lend, borrow and give_back of struct cluster_transport. ERR_STATE: the pool is not in
 * shared memory. ERR_IO, ERR_FORMAT, ERR_NOMEM. */
MUST int cluster_pool_lend(int fd, const struct kv_pool *pool);
MUST int cluster_pool_borrow(void **pool, size_t *bytes, int fd);
void cluster_pool_give_back(void *pool, size_t bytes);

#endif
