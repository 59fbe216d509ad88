/* par/rank.h - ranks as processes: started, watched, ended.
 *
 * The ranks are children of the caller, made by fork(), so that they see what it sees:
 * par_shm mappings and the communicators in them. A thread of the caller looks at them
 * 50 times a second: one that dies or stays stopped is named with its signal within a
 * second, and the others are told to give up, so that nobody waits for it. Nothing is
 * left behind: no name, no descriptor, and no process, since a rank dies with the
 * thread that opened it. It looks by waitid(), which knows of stops too: a heartbeat
 * would have to guess.
 *
 * States: open - running - (failed | all ended) - closed.
 * The caller must not wait for children it does not know, as waitpid(-1) does. fork()
 * copies the calling thread only: open the ranks before starting threads that hold
 * locks.
 * Paper: Sandwich 7.2.   Threads: open and close by one thread, which lives as long;
 * the others from any. */
#ifndef PAR_RANK_H
#define PAR_RANK_H

#include <sys/types.h>

#include "base/err.h"

struct par_ranks;

/* What a rank does, in its process; OK, or an error that is reported with its message.
 * SIGINT is ignored there: who opened the ranks ends them, in order. */
typedef int (*par_rank_fn)(void *arg, int rank);

struct par_ranks_opts {
    int n_ranks; /* in all */
    int first;   /* 0, or 1: the caller is rank 0 itself, not a child */
    par_rank_fn fn;
    void *arg;
    /* Rank r may run on cpus[r][0 .. n_cpus[r] - 1]; NULL: where the caller may. */
    const int *const *cpus;
    const int *n_cpus;
    /* Makes the ranks give up, such as par_comm_abort(); from another thread, more than
     * once. NULL: they are only killed when closed. */
    void (*abort)(void *mem);
    void *mem;
};

/* Read during the call; `arg` and `mem` as long as the ranks are open. ERR_ARG: numbers.
 * ERR_IO: no process or thread more. ERR_NOMEM. */
MUST int par_ranks_open(struct par_ranks **out, const struct par_ranks_opts *o);

/* OK: every rank runs or has ended well. ERR_STATE: the first that did not, as "rank 1
 * of 4 (process 812) was killed by SIGSEGV", "... was stopped by SIGSTOP", "...: its
 * message". */
MUST int par_ranks_check(struct par_ranks *p);
/* The same, when all have ended, or one failed, or the time is over (ERR_LIMIT). */
MUST int par_ranks_wait(struct par_ranks *p, int timeout_ms);
/* The rank's process; 0 once it has ended, or where the caller is the rank. */
pid_t par_ranks_pid(struct par_ranks *p, int rank);

/* Tell those that still run to give up, kill who does not within two seconds, and wait
 * for all. */
void par_ranks_close(struct par_ranks **p); /* NULL is fine */

#endif
