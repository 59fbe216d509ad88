/* par/team_parts.h - what a team consists of, for par/team.c and the plug-ins in par/team/. */
#ifndef PAR_TEAM_PARTS_H
#define PAR_TEAM_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "par/team.h"

#define PAR_TEAM_LINE 64

/* One thread's lines. They are written by that thread alone while it runs; `parked` is its own,
 * and cleared by the opener when it wakes it. */
struct par_worker {
    struct par_self self;
    uint64_t last_job;
    int cpu_wanted;
    int pin_failed;
    pthread_t thread;
    atomic_int cpu_seen;
    atomic_ullong n_runs, n_parks, wait_ns;
    _Alignas(PAR_TEAM_LINE) atomic_uint parked;
} __attribute__((aligned(PAR_TEAM_LINE)));

struct par_team {
    const struct par_team_kind *kind;
    int n;
    bool pin;
    int n_started; /* of the n - 1 besides the opener */
    uint64_t spin_ns;

    /* Written by the opener only and read by the threads of the job, for which it waits
     * before it writes again. */
    _Alignas(PAR_TEAM_LINE) par_fn fn;
    void *arg;
    /* On the same cache line on purpose: reading the word fetches the job, too. */
    atomic_ullong job;

    _Alignas(PAR_TEAM_LINE)
        atomic_uint n_left; /* workers that have not finished the job */
    atomic_uint opener_parked;

    struct par_group all; /* the barrier of the threads of the job */
    struct par_worker workers[];
};

void par_futex_wait(atomic_uint *word, unsigned value);
void par_futex_wake(atomic_uint *word, int n);

/* Only the thread whose counter it is adds to it: no read-modify-write is needed. */
static inline void par_team_add(atomic_ullong *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* The job's function on the thread of w, one of n. */
void par_team_run_job(struct par_team *t, struct par_worker *w, int n);
/* All n threads of g meet; how par_barrier() works unless the team's kind has a barrier. */
void par_team_meet(struct par_group *g, unsigned n, struct par_self *self);
/* Which threads could not be pinned: ERR_IO names the first. */
MUST int par_team_pinned(const struct par_team *t);

#endif
