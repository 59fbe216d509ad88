/* Partitioned (MPI-4). A partition is one head of a piece, packed, as partitions are of one
 * size and in one memory. Open MPI 4.1 does not have it. */
#include "cluster/mpi/mpi.h"

const struct cluster_transport cluster_transport_mpi_partitioned = {
    .name = "mpi_partitioned",
    .help = "MPI-4's partitioned communication, under mpirun: a partition for each head",
    .mpi = true,
    .lend = cluster_mpi_lend_parts,
    .borrow = cluster_mpi_borrow_parts,
    .give_back = cluster_mpi_give_back,
    .put = cluster_mpi_send_parts,
    .get = cluster_mpi_receive_parts};
