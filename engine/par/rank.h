/* par/rank.h - ranks as processes: started, watched, ended.
 *
 * The ranks are children of the caller, made by fork(), so that they see what it sees:
 * par_shm mappings and the communicators in them. A thread of the caller checks
 * them 50 times a second with waitid(), which also reports stopped processes. A rank that
 * dies or stays stopped is named with its signal within a second, and the others are told
 * to abort, so that none waits for it. Nothing is left behind: no name, no descriptor and no
 * process, since a rank ends with the thread that opened it.
 *
 * States: open - running - (failed | all ended) - closed.
 * The caller must not wait for children it does not know, as waitpid(-1) does. fork()
 * copies the calling thread only: open the ranks before starting threads that hold
 * locks.
 * Paper: Sandwich 7.2.   Threads: one thread opens and closes, and must not end before;
 * the other functions may be called from any. */
#ifndef PAR_RANK_H
#define PAR_RANK_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct par_ranks;

/* The function that a rank's process runs. Its error is reported with its message. SIGINT,
 * SIGTERM and SIGHUP are ignored there: the opener ends the ranks in order. */
typedef int (*par_rank_fn)(void *arg, int rank);

struct par_ranks_opts {
    int n_ranks; /* in all */
    int first;   /* 0, or 1: the caller is rank 0 itself, not a child */
    par_rank_fn fn;
    void *arg;
    /* [n_ranks] what errors call each, lent while they are open; NULL: "rank 1 of 4". */
    const char *const *names;
    /* Rank r may run on cpus[r][0 .. n_cpus[r] - 1]; NULL: on the CPUs of the caller. */
    const int *const *cpus;
    const int *n_cpus;
    /* Tells the ranks to abort, such as par_comm_abort(). It is called from another thread
     * and may be called more than once. NULL: they are only killed at close. */
    void (*abort)(void *mem);
    void *mem;
    /* Start no thread: par_ranks_check() and par_ranks_wait() check the ranks themselves, for a
     * caller that must be able to fork() again. */
    bool no_watcher;
};

/* `o` is read during the call; `arg` and `mem` must stay valid as long as the ranks are
 * open. ERR_ARG: a number is out of range. ERR_IO: the system refuses another process or
 * thread. ERR_NOMEM. */
MUST int par_ranks_open(struct par_ranks **out, const struct par_ranks_opts *o);

/* OK: every rank runs or has ended without error. ERR_STATE names the first failed one: "rank 1
 * of 4 (process 812) was killed by SIGSEGV", "... was stopped by SIGSTOP", "...: its
 * message". */
MUST int par_ranks_check(struct par_ranks *p);
/* Wait until all have ended or one has failed; ERR_LIMIT: the time is over. */
MUST int par_ranks_wait(struct par_ranks *p, int timeout_ms);
/* The rank's process; 0 once it has ended, or where the caller is the rank. */
pid_t par_ranks_pid(struct par_ranks *p, int rank);

/* Tell running ranks to abort, kill those that do not end within two seconds, and wait for
 * all. */
void par_ranks_close(struct par_ranks **p); /* NULL is fine */

#endif
