/* Two-sided. The runs of a piece are one message, of a type that names them: nothing is packed. */
#include "cluster/mpi/mpi.h"

const struct cluster_transport cluster_transport_mpi_isend = {
    .name = "mpi_isend",
    .help = "two-sided, under mpirun: MPI_Isend and MPI_Irecv of each piece",
    .mpi = true,
    .lend = cluster_mpi_lend,
    .borrow = cluster_mpi_borrow,
    .give_back = cluster_mpi_give_back,
    .put = cluster_mpi_send,
    .get = cluster_mpi_receive};
