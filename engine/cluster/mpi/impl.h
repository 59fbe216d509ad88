/* cluster/mpi/impl.h - the inside, for the files of this folder only: mpi.c has the communication
 * thread and the links, piece.c moves pieces. */
#ifndef CLUSTER_MPI_IMPL_H
#define CLUSTER_MPI_IMPL_H

#include "cluster/mpi/mpi.h"

#define CLUSTER_MPI_LINKS_MAX 64

struct cluster_mpi_end {
    int fd;
    struct cluster_mpi_link *link;
    char *base;       /* sender: the first of the addresses that were lent */
    uint64_t n_flags; /* pieces so far */
};

extern const struct cluster_mpi_library *cluster_mpi; /* NULL: not open */
/* fn(arg) by the communication thread; waits. */
int cluster_mpi_do(int (*fn)(void *), void *arg);
/* NULL, with ERR_STATE set: the socket has no link. */
struct cluster_mpi_end *cluster_mpi_end_of(int fd);

#endif
