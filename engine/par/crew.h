/* par/crew.h - the threads of one rank, and the all-reduce in which all of them work.
 *
 * Ranks have equally many threads. They are parts of one team (rank r of T threads: a
 * crew of threads [rT, rT + T)), or each is a process with a team of its own (threads
 * [0, T)). Thread t of a rank sums its slice of a message with thread t of the other
 * ranks, over a communicator of their own, a lane; no lane waits for another. The
 * rank's threads meet before, when all of x is written, and after, when all of it is
 * the sum.
 *
 * Owners: the shared memory belongs to the caller, who gives it back when all crews
 * are closed. A crew belongs to who opened it; lane t inside of it to the rank's
 * thread t.
 * States: open - par_crew_ calls by all its threads, in one phase - closed. After
 * ERR_STATE it can only be closed, in every rank.
 * A plan with other ranks or threads has other crews and other memory.
 * Paper: Sandwich 5.3, 7.2.   Threads: as said at each call. */
#ifndef PAR_CREW_H
#define PAR_CREW_H

#include <stddef.h>

#include "base/err.h"
#include "par/coll.h"
#include "par/team.h"

#define PAR_CREW_MAX 1024 /* threads of a rank */

struct par_crew;

/* Shared memory of all ranks' lanes, a multiple of PAR_LINE, 0 where that is not
 * possible; and make them in memory that is zero, on a boundary of PAR_LINE, before a
 * crew is opened. `max_floats`: of a whole message. ERR_ARG. */
size_t par_crew_bytes(int n_ranks, int n_threads, size_t max_floats);
MUST int par_crew_init(void *mem, int n_ranks, int n_threads, size_t max_floats);
/* As par_comm_abort(), for all lanes. */
void par_crew_abort(void *mem);

/* Rank `rank`, whose threads are `first` and the next ones of team `t`. One thread
 * calls it, once a rank. ERR_ARG: no such rank, or the team is smaller. ERR_STATE:
 * `mem` was not made for ranks. ERR_NOMEM. */
MUST int par_crew_open(struct par_crew **out, void *mem, int rank, struct par_team *t,
                       int first);
void par_crew_close(struct par_crew **c); /* NULL is fine */

int par_crew_rank(const struct par_crew *c);
int par_crew_n_ranks(const struct par_crew *c);
int par_crew_n_threads(const struct par_crew *c);
/* 0 .. n_threads - 1: this thread's number in its rank. */
int par_crew_lane(const struct par_crew *c, const struct par_self *self);

/* --- inside a phase, by all threads of the rank alike */

void par_crew_barrier(struct par_crew *c, struct par_self *self);

/* x[n], the rank's own and shared by its threads, becomes the sum over the ranks. What
 * any of the threads wrote to x before is in it, and each may read all of it after.
 * `coll` NULL: as the lanes' tables say. The answer is the same for all threads of a
 * rank. ERR_ARG: n is above max_floats. ERR_STATE: aborted; x is undefined. */
MUST int par_crew_allreduce(struct par_crew *c, struct par_self *self,
                            const struct par_coll *coll, float *x, size_t n);

/* par_comm_measure() in every lane at once; by all threads of all ranks. */
MUST int par_crew_measure(struct par_crew *c, struct par_self *self);

#endif
