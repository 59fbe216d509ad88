/* The threads of OpenMP's runtime, as other engines use them: each phase is a parallel region of
 * the whole team, for a region of fewer threads makes libgomp end those left over and start new
 * ones later. Threads that a phase does not use go straight to the region's end.
 *
 * A thread is known by its number in the region, and is pinned when it first has that number, so
 * that OMP_PLACES plays no part. How it waits is the runtime's matter: OMP_WAIT_POLICY,
 * GOMP_SPINCOUNT. Another region of another size in between, such as a GEMM library's, costs new
 * threads, which are pinned again. Where no thread is to be had, OpenMP ends the program. */
#include <omp.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "par/team_parts.h"

#define WAIT_NS 1000 /* a shorter wait counts as 0 */

/* Where this thread of the runtime is pinned; -1: nowhere. */
static _Thread_local int pinned_to = -1;

static void pin(struct par_worker *w)
{
    if (w->self.id == 0 || w->cpu_wanted == pinned_to)
        return; /* the opener is pinned by par_team_open() */
    w->pin_failed = cpu_pin_self(w->cpu_wanted) != OK;
    pinned_to = w->cpu_wanted;
}

static void run(struct par_team *t, int n, par_fn fn, void *arg)
{
    uint64_t done_ns = 0, waited_ns;

    t->fn = fn;
    t->arg = arg;
#pragma omp parallel num_threads(t->n)
    {
        struct par_worker *w = &t->workers[omp_get_thread_num()];

        if (t->pin)
            pin(w);
        if (w->self.id < n)
            par_team_run_job(t, w, n);
        if (w->self.id == 0)
            done_ns = clock_ns();
    }
    waited_ns = clock_ns() - done_ns;
    if (waited_ns > WAIT_NS)
        par_team_add(&t->workers[0].wait_ns, waited_ns);
}

/* A region's barrier is for all of its threads. */
static void barrier(struct par_self *self)
{
    struct par_team *t = self->team;
    uint64_t start_ns, waited_ns;

    if (self->n != t->n) {
        par_team_meet(&t->all, (unsigned)self->n, self);
        return;
    }
    start_ns = clock_ns();
#pragma omp barrier
    waited_ns = clock_ns() - start_ns;
    if (waited_ns > WAIT_NS)
        par_team_add(&t->workers[self->id].wait_ns, waited_ns);
}

static void nothing(void *arg, struct par_self *self)
{
    (void)arg, (void)self;
}

static int start(struct par_team *t)
{
    int n = 0;

    if (t->n == 1)
        return OK;
    omp_set_dynamic(0);
#pragma omp parallel num_threads(t->n)
    {
#pragma omp single
        n = omp_get_num_threads();
    }
    if (n != t->n)
        return err_set(ERR_NOMEM,
                       "team: OpenMP gives %d of %d threads: see OMP_THREAD_LIMIT", n,
                       t->n);
    run(t, t->n, nothing, NULL);
    for (int i = 0; i < t->n; i++) { /* that phase was none of the caller's */
        atomic_store_explicit(&t->workers[i].n_runs, 0, memory_order_relaxed);
        atomic_store_explicit(&t->workers[i].wait_ns, 0, memory_order_relaxed);
    }
    return par_team_pinned(t);
}

/* Its threads end, so that none keeps its CPU for the next team, and the program may fork. */
static void stop(struct par_team *t)
{
    if (t->n > 1)
        omp_pause_resource_all(omp_pause_hard);
}

const struct par_team_kind par_team_kind_openmp = {
    .name = "openmp",
    .help = "threads of OpenMP's runtime, a parallel region for each phase",
    .start = start,
    .stop = stop,
    .run = run,
    .barrier = barrier,
};
