/* model/procs.h - the ranks of a model as processes.
 *
 * The caller is rank 0. The others are its children, which have every phase, every weight
 * and all memory of a shared model at the same addresses. Packed weights are read-only from
 * then on, so that no process gets a private copy of a page. Activations, keys and values
 * are in one shared mapping. A step is the same code as with ranks that are threads of one
 * process. The caller publishes a step and takes part in it; a process without a rank in the
 * phase keeps sleeping.
 * A rank that dies or stops is named with its signal within a second, also between steps,
 * and the running step ends with that error: the others are told to abort, and do so within
 * their current layer.
 *
 * Order: model_open() with `shared`, phases and their schedules, the pool of keys and
 * values, then close the team, then open the processes (no other thread of the caller
 * should hold a lock at that moment), steps, close, and last the phases and the model.
 * Paper: Sandwich 5.3, 7.2.   Threads: the one that opened them, except for _check(). */
#ifndef MODEL_PROCS_H
#define MODEL_PROCS_H

#include <sys/types.h>

#include "model/model.h"

struct model_procs_opts {
    /* The phases of the steps, decode's first: its CPUs come first in each team. */
    struct model_phase *const *phases;
    int n_phases;
    /* cpus[f][i]: the CPU of thread i % n_threads of rank i / n_threads in phase f. NULL:
     * threads run on the CPUs of the caller. */
    const int *const *cpus;
    int64_t max_chunks; /* of a step */
    /* The pool of keys and values, lent. Processes map its pages before they are ready, so
     * that the first steps of a request do not. NULL: not in advance. */
    const struct kv_pool *pool;
    /* Called once by a thread of the caller when a rank has failed, which
     * model_procs_check() names; may be NULL. */
    void (*on_fail)(void *ctx);
    void *ctx;
};

/* Fork a process for each rank but the first, as many as the largest phase has, and wait
 * until they are ready. Read during the call, `ctx` as long as they are open. ERR_STATE:
 * the model is not shared; a rank could not start, with its message. ERR_IO, ERR_NOMEM. */
MUST int model_procs_open(struct model *m, const struct model_procs_opts *o);
/* End the processes and wait for them. The model can run no further steps. NULL is fine. */
void model_procs_close(struct model *m);

/* OK, or ERR_STATE: "rank 1 of 2 (process 812) was killed by SIGSEGV". */
MUST int model_procs_check(const struct model *m);
int model_procs_n(
    const struct model
        *m); /* number of processes, including this one; 0: ranks are threads */
/* The process of a rank (for rank 0 this one); 0 once it has ended. */
pid_t model_procs_pid(const struct model *m, int rank);
/* The statistics of thread `thread` of a rank's team, as of its last step. Returns false if
 * there is no such thread. */
bool model_procs_thread(const struct model *m, int rank, int thread,
                        struct par_thread_stat *out);

/* The team that steps run on: the one of this process's rank. */
struct par_team *model_team(const struct model *m);

#endif
