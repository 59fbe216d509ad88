/* par/shm.h - memory that ranks share, whether they are teams of one process or
 * processes.
 *
 * A mapping of an unnamed file (memfd): it has no name in /dev/shm and disappears when the
 * last process ends, even by a signal. Data in it hold offsets, never pointers, since
 * another process may map it at another address.   Paper: Sandwich 7.2.   Threads:
 * any. */
#ifndef PAR_SHM_H
#define PAR_SHM_H

#include <stddef.h>

#include "base/err.h"

struct par_shm {
    void *base; /* zeroed at first, on a page boundary */
    size_t bytes;
    int fd; /* inherited by fork(), closed when a program is executed */
};

/* Pages are taken when they are first written. ERR_ARG: no bytes. ERR_NOMEM. */
MUST int par_shm_open(struct par_shm *out, size_t bytes);
void par_shm_close(struct par_shm *s); /* a zeroed struct is fine; so is closing twice */

#endif
