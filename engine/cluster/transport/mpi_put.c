/* One-sided puts. The message that announces a piece comes before it; the receiver polls the flag,
 * which the sender sets when a flush has confirmed that all puts are there: puts are unordered. */
#include "cluster/mpi/mpi.h"

const struct cluster_transport cluster_transport_mpi_put = {
    .name = "mpi_put",
    .help = "one-sided, under mpirun: MPI_Put of each run, a flush, and a flag behind it",
    .mpi = true,
    .lend = cluster_mpi_lend,
    .borrow = cluster_mpi_borrow,
    .give_back = cluster_mpi_give_back,
    .put = cluster_mpi_put,
    .get = cluster_mpi_wait};
