/* cluster/transport_bench.h - how fast a transport moves keys and values between two processes that
 * compute nothing, and what processor time it takes.
 *
 * Made-up prompts follow each other: the sender has their keys and values in memory and stores
 * layer by layer at once. The receiver has memory for a few at a time.
 * Paper: Splitwise IV-C.   Threads: one. */
#ifndef CLUSTER_TRANSPORT_BENCH_H
#define CLUSTER_TRANSPORT_BENCH_H

#include "cluster/transport.h"

struct cluster_bench_opts {
    const struct cluster_transport *transport;
    struct kv_shape shape;
    const char *alloc; /* of the receiver's pool; the sender's is contiguous */
    int64_t n_tok;     /* of a prompt */
    int n_transfers, in_flight;
    bool no_checksums;
    double bytes_per_s; /* of an emulated link; 0: as fast as it goes */
};

struct cluster_bench_result {
    /* From the first offer to the end of the last transfer, and both as clock_ns() / 1e9. */
    double seconds, begin_s, end_s;
    int64_t bytes, n_pieces;
    double put_s, hash_s; /* of the sender's thread */
    double sender_cpu_s, receiver_cpu_s;
    bool same; /* the last prompt has the same bytes at both ends */
};

enum { CLUSTER_BENCH_LINK, CLUSTER_BENCH_CONTROL, CLUSTER_BENCH_N_SOCKETS };

/* An end, each in its process: fd[] are connected to the other end's, and closed. ERR_ARG, ERR_IO,
 * ERR_NOMEM, ERR_STATE: the other end failed. */
MUST int cluster_bench_send(struct cluster_bench_result *out,
                            const int fd[CLUSTER_BENCH_N_SOCKETS],
                            const struct cluster_bench_opts *o);
MUST int cluster_bench_receive(const int fd[CLUSTER_BENCH_N_SOCKETS],
                               const struct cluster_bench_opts *o);
/* By both ranks that mpirun has started: the sender is rank 0. library: [n] as of
 * cluster_mpi_open(). ERR_STATE: there are not two. */
MUST int cluster_bench_connect_ranks(int fd[CLUSTER_BENCH_N_SOCKETS], int *rank,
                                     char *library, size_t n);

#endif
