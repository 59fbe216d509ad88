/* cluster/mpi/mpi.h - MPI for the transports mpi_*: one communication thread per process makes
 * every call of MPI. The library is that of the mpirun that started the process: a shared object
 * made of library.c, mpi/openmpi.so or mpi/mpich.so next to the program.
 * Links are known by the file number of their socket, as transports are called by it.
 * Threads: any. */
#ifndef CLUSTER_MPI_MPI_H
#define CLUSTER_MPI_MPI_H

#include "cluster/mpi/library.h"
#include "cluster/transport.h"

/* The rank of this process, as mpirun gives it in the environment; -1: there is none. Makes no call
 * of MPI. */
int cluster_mpi_rank(void);
/* Load and initialize MPI, once, by all processes. text: [n] its name and version.
 * ERR_STATE: the process was not started by mpirun, or by one of a library that there is no shared
 * object for. */
MUST int cluster_mpi_open(int *rank, int *size, char *text, size_t n);
/* Close all links, by both ends of each at once, and MPI, by all processes. Nothing if not open. */
void cluster_mpi_close(void);
/* By all processes: that of rank 0 gives buf[bytes] to all. */
MUST int cluster_mpi_bcast(void *buf, int bytes);

/* Members lend, borrow and give_back of struct cluster_transport. What borrow() lends are
 * addresses without memory: a pointer less the first of them is a place in the pool. */
MUST int cluster_mpi_lend(int fd, const struct kv_pool *pool);
MUST int cluster_mpi_borrow(void **pool, size_t *bytes, int fd);
/* The same for partitioned communication. ERR_UNSUPPORTED: the library has none. */
MUST int cluster_mpi_lend_parts(int fd, const struct kv_pool *pool);
MUST int cluster_mpi_borrow_parts(void **pool, size_t *bytes, int fd);
void cluster_mpi_give_back(void *pool, size_t bytes);

/* put() and get() of a piece; see transport/mpi_*.c. */
MUST int cluster_mpi_put(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                         const struct kv_slot *from, const struct cluster_piece *p);
MUST int cluster_mpi_wait(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                          const struct cluster_piece *p);
MUST int cluster_mpi_send(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                          const struct kv_slot *from, const struct cluster_piece *p);
MUST int cluster_mpi_receive(int fd, const struct kv_shape *shape,
                             const struct kv_slot *to, const struct cluster_piece *p);
MUST int cluster_mpi_send_parts(int fd, const struct kv_shape *shape,
                                const struct kv_slot *to, const struct kv_slot *from,
                                const struct cluster_piece *p);
MUST int cluster_mpi_receive_parts(int fd, const struct kv_shape *shape,
                                   const struct kv_slot *to,
                                   const struct cluster_piece *p);

#endif
