#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/name.h"
#include "cpu/cpu.h"
#include "par/spin.h"
#include "par/team_parts.h"

/* A wake-up through the kernel costs some 5-60 us (the upper end in a virtual machine),
 * so a thread spins about that long: never more than twice the best choice in hindsight.
 */
#define SPIN_NS 60000
/* Where threads share CPUs, a spinning thread keeps away the one it waits for. */
#define SPIN_SHARED_NS 2000

#define TEAM_MAX 32767

void par_futex_wait(atomic_uint *word, unsigned value)
{
    /* EINTR, EAGAIN and spurious wake-ups all lead to the caller's next check of its word
     */
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void par_futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

void par_team_run_job(struct par_team *t, struct par_worker *w, int n)
{
    w->self.n = n;
    t->fn(t->arg, &w->self);
    atomic_store_explicit(&w->cpu_seen, cpu_current(), memory_order_relaxed);
    par_team_add(&w->n_runs, 1);
}

void par_team_run(struct par_team *t, int n_threads, par_fn fn, void *arg)
{
    if (t->pin)
        cpu_pin_again(t->workers[0].cpu_wanted); /* where this thread has several teams */
    if (n_threads > 1) {
        t->kind->run(t, n_threads, fn, arg);
        return;
    }
    t->fn = fn;
    t->arg = arg;
    par_team_run_job(t, &t->workers[0], 1);
}

static void barrier_park(struct par_group *g, struct par_worker *w, unsigned generation)
{
    /* the same Dekker pair as above: n_parked before generation, and the last one to
     * arrive the other way round */
    atomic_fetch_add(&g->n_parked, 1);
    while (atomic_load(&g->generation) == generation) {
        par_team_add(&w->n_parks, 1);
        par_futex_wait(&g->generation, generation);
    }
    atomic_fetch_sub(&g->n_parked, 1);
}

void par_team_meet(struct par_group *g, unsigned n, struct par_self *self)
{
    struct par_team *t = self->team;
    struct par_worker *w = &t->workers[self->id];
    unsigned generation;
    struct spin s = {0};

    if (n == 1)
        return;
    /* cannot turn over before this thread arrives */
    generation = atomic_load_explicit(&g->generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&g->n_arrived, 1, memory_order_acq_rel) == n - 1) {
        atomic_store_explicit(&g->n_arrived, 0, memory_order_relaxed);
        atomic_store(&g->generation, generation + 1);
        if (atomic_load(&g->n_parked))
            par_futex_wake(&g->generation, INT_MAX);
        return;
    }
    while (atomic_load_explicit(&g->generation, memory_order_acquire) == generation) {
        if (!spin_on(&s, t->spin_ns)) {
            barrier_park(g, w, generation);
            break;
        }
    }
    par_team_add(&w->wait_ns, spin_waited_ns(&s));
}

void par_barrier(struct par_self *self)
{
    struct par_team *t = self->team;

    if (t->kind->barrier && self->n > 1)
        t->kind->barrier(self);
    else
        par_team_meet(&t->all, (unsigned)self->n, self);
}

void par_group_init(struct par_group *g, int first, int n)
{
    *g = (struct par_group){.first = first, .n = n};
}

void par_group_barrier(struct par_group *g, struct par_self *self)
{
    par_team_meet(g, (unsigned)g->n, self);
}

/* ---- opening and closing ---- */

static bool cpus_distinct(const int *cpus, int n)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            if (cpus[i] == cpus[j])
                return false;
        }
    }
    return true;
}

static void init_workers(struct par_team *t, const int *cpus)
{
    for (int i = 0; i < t->n; i++) {
        struct par_worker *w = &t->workers[i];

        w->cpu_wanted = t->pin ? cpus[i] : -1;
        w->self = (struct par_self){.id = i, .n = 1, .cpu = w->cpu_wanted, .team = t};
        atomic_init(&w->cpu_seen, -1);
    }
}

int par_team_pinned(const struct par_team *t)
{
    for (int i = 1; i < t->n; i++)
        if (t->workers[i].pin_failed)
            return err_set(ERR_IO, "team: thread %d cannot be pinned to CPU %d", i,
                           t->workers[i].cpu_wanted);
    return OK;
}

int par_team_find(const char *name, const struct par_team_kind **out)
{
    *out = name_find(par_team_kinds, name, "kind of team");
    return *out ? OK : ERR_NOTFOUND;
}

const char *par_team_kind_name(int i)
{
    return par_team_kinds[i] ? par_team_kinds[i]->name : NULL;
}

int par_team_open_by(struct par_team **out, const struct par_team_kind *kind,
                     const int *cpus, int n, int pin)
{
    struct par_team *t;
    int rc;

    *out = NULL;
    if (n < 1 || n >= TEAM_MAX)
        return err_set(ERR_ARG, "team: threads: expected 1 .. %d, found %d", TEAM_MAX - 1,
                       n);
    if (pin && !cpus)
        return err_set(ERR_ARG, "team: pinning needs a list of CPUs");
    t = mem_new(MEM_TEAM, 1, sizeof(*t) + (size_t)n * sizeof(struct par_worker));
    if (!t)
        return ERR_NOMEM;
    t->kind = kind;
    t->n = n;
    t->pin = pin != 0;
    t->spin_ns = pin && cpus_distinct(cpus, n) ? SPIN_NS : SPIN_SHARED_NS;
    init_workers(t, cpus);
    rc = kind->start(t); /* before this thread's pinning, which they would inherit */
    if (rc == OK && t->pin)
        rc = cpu_pin_begin(cpus[0]);
    if (rc != OK)
        t->pin = false; /* this thread was not pinned: nothing to put back */
    if (rc == OK)
        *out = t;
    else
        par_team_close(&t);
    return rc;
}

void par_team_close(struct par_team **team)
{
    struct par_team *t = *team;

    if (!t)
        return;
    *team = NULL;
    t->kind->stop(t);
    if (t->pin)
        cpu_pin_end();
    mem_free(t);
}

const char *par_team_name(const struct par_team *t)
{
    return t->kind->name;
}

int par_team_size(const struct par_team *t)
{
    return t->n;
}

void par_team_add_wait(struct par_team *t, int thread, uint64_t ns)
{
    par_team_add(&t->workers[thread].wait_ns, ns);
}

uint64_t par_team_spin_ns(const struct par_team *t)
{
    return t->spin_ns;
}

void par_team_stat(const struct par_team *t, int thread, struct par_thread_stat *out)
{
    const struct par_worker *w = &t->workers[thread];

    *out = (struct par_thread_stat){
        .cpu_wanted = w->cpu_wanted,
        .cpu_seen = atomic_load_explicit(&w->cpu_seen, memory_order_relaxed),
        .n_runs = atomic_load_explicit(&w->n_runs, memory_order_relaxed),
        .n_parks = atomic_load_explicit(&w->n_parks, memory_order_relaxed),
        .wait_ns = atomic_load_explicit(&w->wait_ns, memory_order_relaxed),
    };
}
