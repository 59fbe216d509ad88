/* cluster/mpi/library.h - what the transports use of an MPI library.
 *
 * library.c is compiled once for each MPI library that is found, as a shared object that only
 * processes under mpirun load: the programs themselves do not depend on MPI. An error of MPI ends
 * all processes (MPI_ERRORS_ARE_FATAL).   Threads: one, which called init(). */
#ifndef CLUSTER_MPI_LIBRARY_H
#define CLUSTER_MPI_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#define CLUSTER_MPI_VERSION 1
#define CLUSTER_MPI_SYMBOL  "cluster_mpi_library"

struct cluster_mpi_run {
    void *at;
    size_t bytes;
};

struct
    cluster_mpi_link; /* between two processes: a communicator, and windows of the target */

struct cluster_mpi_library {
    int version;
    /* text: [n] name and version of the library. 0, or -1: it does not let one thread of several
     * call it (MPI_THREAD_SERIALIZED), or its windows are separate from memory. */
    int (*init)(int *rank, int *size, char *text, size_t n);
    void (*finalize)(void);
    void (*bcast)(void *buf, int bytes);
    /* By both at once. The target lends pool[bytes]. NULL: no memory. */
    struct cluster_mpi_link *(*open)(int peer, int is_target, void *pool, size_t bytes);
    void (*close)(struct cluster_mpi_link *l); /* by both at once */

    /* One-sided. put(): to the byte `at` of the pool, unordered. flag(): all puts so far are there,
     * and after them the target's flag is `value`. */
    void (*put)(struct cluster_mpi_link *l, size_t at, const void *from, size_t bytes);
    void (*flag)(struct cluster_mpi_link *l, uint64_t value);
    /* Target. The flag, without a call of MPI; any thread. */
    uint64_t (*seen)(struct cluster_mpi_link *l);
    void (*sync)(struct cluster_mpi_link *l); /* what came before the flag can be read */
    void (*progress)(struct cluster_mpi_link *l);

    /* Two-sided: the bytes of n runs, one after the other, as one message. begin(): without
     * waiting; end(): waits for it. */
    int (*send)(struct cluster_mpi_link *l, const struct cluster_mpi_run *runs, int n);
    int (*receive)(struct cluster_mpi_link *l, const struct cluster_mpi_run *runs, int n);

    /* Partitioned: n parts of `bytes` each, one after the other in memory. NULL: not in this
     * library. part_there(): with MPI_Parrived. end(): waits for all. */
    int (*parts_begin)(struct cluster_mpi_link *l, int sends, void *buf, int n,
                       size_t bytes);
    void (*part_ready)(struct cluster_mpi_link *l, int part);
    int (*part_there)(struct cluster_mpi_link *l, int part);
    void (*parts_end)(struct cluster_mpi_link *l);
};

#endif
