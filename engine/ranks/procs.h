/* ranks/procs.h - runs each rank of a model in its own process.
 *
 * The caller is rank 0. The other ranks are forked children, which see every phase, every
 * weight and all memory of a shared model at the same addresses. model_procs_open() makes
 * packed weights read-only, so that no process gets a private copy of a page.
 * Activations, keys and values are in shared mappings. Processes compute a step with the
 * same code as ranks that are threads of one process. The caller publishes a step and
 * takes part in it. A process without a rank in the phase keeps sleeping.
 * When a rank's process ends or stops, an error names the rank and its signal within a
 * second, also between steps. A running step ends with that error: the other ranks are
 * told to abort and do so within their current layer.
 *
 * Order of calls: model_open() with `shared`, open the phases, set their schedules, open
 * the pool of keys and values, close the team, model_procs_open(), steps,
 * model_procs_close(), close the phases, close the model. No other thread of the caller
 * should hold a lock during model_procs_open(), since it forks.
 * Paper: Sandwich 5.3, 7.2.   Threads: only the one that opened the processes may call
 * these functions, except for model_procs_check(). */
#ifndef RANKS_PROCS_H
#define RANKS_PROCS_H

#include <sys/types.h>

#include "ranks/phase.h"

struct model_procs_opts {
    /* The phases that steps will use, decode's first, because its CPUs come first in the
     * team of each process. */
    struct model_phase *const *phases;
    int n_phases;
    /* cpus[f][i]: the CPU of thread i % n_threads of rank i / n_threads in phase f. NULL:
     * threads run on the CPUs of the caller. */
    const int *const *cpus;
    int64_t max_chunks; /* most chunks in a step */
    /* The pool of keys and values, lent. Each process maps its pages while it starts, so
     * that the first steps of a request need not. NULL: steps map them. */
    const struct kv_pool *pool;
    /* Called once, on a thread of the caller's process, when a rank has failed.
     * model_procs_check() then names the rank. May be NULL. */
    void (*on_fail)(void *ctx);
    void *ctx;
};

/* Fork one process for each rank of the phase with most ranks, except for rank 0, and
 * wait until they are ready. `o` and what it points to are read during the call only;
 * `on_fail` and `ctx` are used until model_procs_close(). ERR_STATE: the model is not
 * shared, or a rank could not start (the message is the rank's). ERR_IO, ERR_NOMEM. */
MUST int model_procs_open(struct model *m, const struct model_procs_opts *o);
/* End the processes and wait for them. The model cannot run steps afterwards. `m` may be
 * NULL. */
void model_procs_close(struct model *m);

/* OK, or ERR_STATE: "rank 1 of 2 (process 812) was killed by SIGSEGV". */
MUST int model_procs_check(const struct model *m);
/* The number of processes, including this one. 0: ranks are threads of this process. */
int model_procs_n(const struct model *m);
/* The process id of a rank (of rank 0: this process); 0 once the process has ended. */
pid_t model_procs_pid(const struct model *m, int rank);
/* The statistics of thread `thread` of a rank's team, as of its last step. Returns false
 * if there is no such thread. */
bool model_procs_thread(const struct model *m, int rank, int thread,
                        struct par_thread_stat *out);

/* How long the threads of all ranks have waited for one another, since they were started:
 * their sum. Between steps. */
uint64_t model_wait_ns(const struct model *m);

/* Compute a step with each rank in its own process. ERR_STATE: a rank's process failed;
 * the message names it. */
struct model_procs;
struct model_step;
MUST int model_procs_step(struct model_procs *p, const struct model_step *s);

/* The team of this process's rank, on which its steps run. Lent. */
struct par_team *model_team(const struct model *m);

#endif
