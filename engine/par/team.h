/* par/team.h - a team of pinned threads that lives for the whole run.
 *
 * Its threads are started once and ended once; work is handed out to them in between. The
 * thread that opens the team is its thread 0 and works too, so handing out a step costs
 * no wake-up of another thread on the way back. A phase uses the first n threads; the
 * others spin briefly, then park on a futex: they must not steal power, SMT or turbo.
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

/* What a worker knows of itself. Lives on its own cache line. */
struct par_self {
    int id;  /* 0 .. n-1 */
    int n;   /* threads in this phase */
    int cpu; /* the CPU it is pinned to */
    struct par_team *team;
};

typedef void (*par_fn)(void *arg, struct par_self *self);

/* Start n threads, thread i pinned to cpus[i] (decode's cores come first). n >= 1.
 * The calling thread becomes thread 0 and is pinned until par_team_close() puts its old
 * affinity back. pin == 0: no pinning (tests, oversubscription).
 * ERR_ARG: n < 1. ERR_IO: a thread cannot be started, or not pinned to its CPU. */
MUST int par_team_open(struct par_team **out, const int *cpus, int n, int pin);
/* Ends the threads: afterwards none of them is left that could hold a lock, so the caller
 * may fork. NULLs *t. */
void par_team_close(struct par_team **t);

int par_team_size(const struct par_team *t);
/* How long its threads spin before they sleep: short where they share CPUs. */
uint64_t par_team_spin_ns(const struct par_team *t);

/* Run fn(arg, self) on threads 0 .. n_threads-1, the caller being 0; returns when all
 * have returned. 1 <= n_threads <= size. Allocates nothing, takes no lock. */
void par_team_run(struct par_team *t, int n_threads, par_fn fn, void *arg);

/* All threads of the running phase wait for each other. Spins, then parks. */
void par_barrier(struct par_self *self);

/* Some threads of a team, [first, first + n), that meet among themselves, such as one
 * rank of several. Where mem_new() puts it; made before the phase that uses it, then
 * shared by its threads, all of which take part in that phase. */
struct par_group {
    int first, n; /* fixed */
    /* Counted by all who arrive; the last one turns `generation` over. */
    _Alignas(64) atomic_uint n_arrived;
    _Alignas(64) atomic_uint generation;
    atomic_uint n_parked;
};
void par_group_init(struct par_group *g, int first, int n);
/* As par_barrier(), for the group's threads alone. */
void par_group_barrier(struct par_group *g, struct par_self *self);

/* The share of `n` items for thread id of n_threads: [*lo, *hi), floor partition, so that
 * the boundaries for R threads are among those for any multiple of R. */
static inline void par_share(int64_t n, int id, int n_threads, int64_t *lo, int64_t *hi)
{
    *lo = n * id / n_threads;
    *hi = n * (id + 1) / n_threads;
}

/* Facts for the record. */
struct par_thread_stat {
    int cpu_wanted, cpu_seen; /* seen: where it last ran a phase; -1 if never */
    uint64_t n_runs, n_parks; /* phases run; times it went to sleep */
};
void par_team_stat(const struct par_team *t, int thread, struct par_thread_stat *out);

#endif
