/* par/team.h - a team of pinned threads that lives for the whole run.
 *
 * The threads are started and ended once and compute many phases in between. A phase is
 * one call of par_team_run(), which uses the team's first n threads. The thread that
 * opens the team is its thread 0 and computes, too, so no thread must be woken when a
 * phase is done. Threads that a phase does not use spin briefly, then sleep on a futex,
 * so that they take no power, SMT sibling or turbo frequency from the threads that
 * compute.
 * Paper: Sandwich 5.3.
 *
 * Threads: only the opening thread may call par_team_ functions; par_self functions are
 * called from inside the function that par_team_run() runs. */
#ifndef PAR_TEAM_H
#define PAR_TEAM_H

#include <stdatomic.h>
#include <stdint.h>
#include <stddef.h>

#include "base/err.h"

struct par_team;

/* A thread's own view of its team. Each is on a cache line of its own. */
struct par_self {
    int id;  /* 0 .. n-1 */
    int n;   /* threads in this phase */
    int cpu; /* the CPU it is pinned to */
    struct par_team *team;
};

typedef void (*par_fn)(void *arg, struct par_self *self);

/* Open a team of n >= 1 threads, thread i pinned to cpus[i] (decode's cores come first).
 * The calling thread becomes thread 0 and is pinned until par_team_close() restores its
 * old affinity. pin == 0: no thread is pinned (tests, oversubscription).
 * *out: owned by the caller, closed with par_team_close(). ERR_ARG: n < 1. ERR_IO: a
 * thread cannot be started or pinned to its CPU. */
MUST int par_team_open(struct par_team **out, const int *cpus, int n, int pin);

/* How a team has its threads. A file in par/team/ ends in one
 * `const struct par_team_kind par_team_kind_<stem>`. The numbering of threads, their CPUs and what
 * they compute are the same with every kind. */
struct par_team_kind {
    const char *name, *help;
    /* Have threads 1 .. n - 1, pinned where t->pin says so. After an error stop() is still
     * called. ERR_NOMEM, ERR_IO. */
    int (*start)(struct par_team *t);
    void (*stop)(struct par_team *t);
    /* Like par_team_run(), for n > 1. */
    void (*run)(struct par_team *t, int n, par_fn fn, void *arg);
    /* Like par_barrier(), for phases of several threads. NULL: the teams' own. */
    void (*barrier)(struct par_self *self);
};
extern const struct par_team_kind *const par_team_kinds[];
extern const struct par_team_kind par_team_kind_pthread; /* what par_team_open() takes */
/* ERR_NOTFOUND names the nearest. */
MUST int par_team_find(const char *name, const struct par_team_kind **out);
const char *par_team_kind_name(int i); /* of par_team_kinds[i]; NULL: past the last */
/* par_team_open() with threads of this kind. */
MUST int par_team_open_by(struct par_team **out, const struct par_team_kind *kind,
                          const int *cpus, int n, int pin);
const char *par_team_name(const struct par_team *t); /* of its kind */

/* End the threads and wait for them, so that none is left that could hold a lock and the
 * caller may fork. Sets *t to NULL. */
void par_team_close(struct par_team **t);

int par_team_size(const struct par_team *t);
/* The time that the team's threads spin before they sleep. It is short where threads
 * share CPUs. */
uint64_t par_team_spin_ns(const struct par_team *t);

/* Run one phase: fn(arg, self) on threads 0 .. n_threads-1, of which the caller is thread
 * 0. Returns when fn has returned on all of them. 1 <= n_threads <= size. Allocates
 * nothing, takes no lock. */
void par_team_run(struct par_team *t, int n_threads, par_fn fn, void *arg);

/* Barrier of all threads of the running phase. A waiting thread spins, then parks (sleeps
 * on a futex). */
void par_barrier(struct par_self *self);

/* Threads [first, first + n) of a team, with a barrier of their own: for example one rank
 * of several. The caller allocates it with mem_new() and initialises it before the phase
 * that uses it. All threads of the group must take part in that phase. */
struct par_group {
    int first, n; /* constant */
    /* The number of threads that arrived at the barrier. The last one to arrive
     * increments `generation`, which releases the others. */
    _Alignas(64) atomic_uint n_arrived;
    _Alignas(64) atomic_uint generation;
    atomic_uint n_parked; /* threads that sleep on `generation` */
};
void par_group_init(struct par_group *g, int first, int n);
/* Barrier of the group's threads only. */
void par_group_barrier(struct par_group *g, struct par_self *self);

/* Set [*lo, *hi) to the share of `n` items that thread id of n_threads has. This is the
 * floor partition: the boundaries for R threads are among those for any multiple of R. */
static inline void par_share(int64_t n, int id, int n_threads, int64_t *lo, int64_t *hi)
{
    *lo = n * id / n_threads;
    *hi = n * (id + 1) / n_threads;
}

/* Placement and activity of a thread, for records. */
struct par_thread_stat {
    int cpu_wanted, cpu_seen; /* cpu_seen: the CPU it last ran a phase on; -1: none yet */
    uint64_t n_runs, n_parks; /* phases that it ran, times that it slept */
    /* How long it waited, in phases, for other threads: at barriers, and thread 0 at the
     * end of a phase. A wait shorter than about 1 us counts as 0. */
    uint64_t wait_ns;
};
void par_team_stat(const struct par_team *t, int thread, struct par_thread_stat *out);
/* Add a wait of another kind, such as for other ranks. Called by that thread only. */
void par_team_add_wait(struct par_team *t, int thread, uint64_t ns);

#endif
