/* par/comm.h - how a communicator lies in shared memory. For coll.c and choice.c only;
 * it holds offsets, since ranks may map it at different addresses.   Threads: see each
 * line. */
#ifndef PAR_COMM_H
#define PAR_COMM_H

#include "par/coll.h"

struct par_comm {
    /* Fixed by par_comm_init(). */
    uint64_t magic;
    int n_ranks;
    size_t max_floats;
    size_t offset[PAR_COLLS_MAX]; /* of each algorithm's part, from here */
    size_t met;                   /* of a word a rank: the meetings it came to */
    /* Written by rank 0 in par_comm_measure(); the others copy it once `chosen` says
     * so. */
    _Alignas(PAR_LINE) struct par_choice choice;
    struct par_flag chosen; /* times measured; rank 0 */
    /* Written once, by whoever aborts. */
    _Alignas(PAR_LINE) atomic_int aborted;
};

#endif
