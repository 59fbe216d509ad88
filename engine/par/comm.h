/* par/comm.h - the layout of a communicator in shared memory. For coll.c and choice.c only.
 * It holds offsets, since ranks may map it at different addresses.   Threads: see each
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
    size_t barriers; /* offset of one flag per rank: number of barriers it has reached */
    /* Written by rank 0 in par_comm_measure(). The others read them once n_published has been
     * raised. */
    _Alignas(PAR_LINE) struct par_choice choice;
    uint64_t published;          /* a word from rank 0 to the others */
    struct par_flag n_published; /* how many there have been */
    /* Written by the first caller of par_comm_abort(). */
    _Alignas(PAR_LINE) atomic_int aborted;
};
_Static_assert(sizeof(struct par_comm) % PAR_LINE == 0, "what follows begins a line");

#endif
