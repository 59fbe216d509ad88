#include "par/team.h"

#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "cpu/cpu.h"
#include "par/spin.h"

#define LINE 64
/* A wake-up through the kernel costs some 5-60 us (the upper end in a virtual machine),
 * so a thread spins about that long: never more than twice the best choice in hindsight.
 */
#define SPIN_NS 60000
/* Where threads share CPUs, a spinning thread keeps away the one it waits for. */
#define SPIN_SHARED_NS 2000

/* What a job word says: which job (never 0, never repeated) and how many threads it
 * wants. */
#define JOB_N_BITS  16
#define JOB_N(word) ((int)((word) & ((1u << JOB_N_BITS) - 1)))
#define TEAM_MAX    (1 << (JOB_N_BITS - 1))

/* One worker's lines. The first is written by the worker alone while it runs; `parked` is
 * its own, and cleared by the opener when it wakes it. */
struct worker {
    struct par_self self;
    uint64_t last_job;
    int cpu_wanted;
    int pin_failed;
    pthread_t thread;
    atomic_int cpu_seen;
    atomic_ullong n_runs, n_parks, wait_ns;
    _Alignas(LINE) atomic_uint parked;
} __attribute__((aligned(LINE)));

struct par_team {
    int n;
    bool pin;
    int n_started; /* of the n - 1 besides the opener */
    uint64_t spin_ns;

    /* Written by the opener only and read by the threads of the job, for which it waits
     * before it writes again. */
    _Alignas(LINE) par_fn fn;
    void *arg;
    /* On the same cache line on purpose: reading the word fetches the job, too. */
    atomic_ullong job;

    _Alignas(LINE) atomic_uint n_left; /* workers that have not finished the job */
    atomic_uint opener_parked;

    struct par_group all; /* the barrier of the threads of the job */
    struct worker workers[];
};

static void futex_wait(atomic_uint *word, unsigned value)
{
    /* EINTR, EAGAIN and spurious wake-ups all lead to the caller's next look at its word
     */
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void add(atomic_ullong *c, uint64_t n)
{
    /* one writer: no read-modify-write needed */
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static void count(atomic_ullong *c)
{
    add(c, 1);
}

/* ---- the worker's side ---- */

static bool job_is_mine(const struct worker *w, uint64_t word)
{
    return word != w->last_job && w->self.id < JOB_N(word);
}

static uint64_t wait_for_job(struct par_team *t, struct worker *w)
{
    struct spin s = {0};
    uint64_t word;

    do {
        word = atomic_load_explicit(&t->job, memory_order_acquire);
        if (job_is_mine(w, word))
            return word;
    } while (spin_on(&s, t->spin_ns));

    for (;;) {
        /* Dekker: parked before job here, job before parked in publish(); one of the two
         * sides sees the other's store, so no wake-up is lost */
        atomic_store(&w->parked, 1);
        word = atomic_load(&t->job);
        if (job_is_mine(w, word))
            break;
        count(&w->n_parks);
        futex_wait(&w->parked, 1);
    }
    atomic_store_explicit(&w->parked, 0, memory_order_relaxed);
    return word;
}

static void run_job(struct par_team *t, struct worker *w, int n)
{
    w->self.n = n;
    t->fn(t->arg, &w->self);
    atomic_store_explicit(&w->cpu_seen, cpu_current(), memory_order_relaxed);
    count(&w->n_runs);
}

static void finish_job(struct par_team *t)
{
    if (atomic_fetch_sub(&t->n_left, 1) == 1 && atomic_load(&t->opener_parked))
        futex_wake(&t->n_left, 1);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct par_team *t = w->self.team;

    w->pin_failed = t->pin && cpu_pin_self(w->cpu_wanted) != OK;
    finish_job(t); /* par_team_open() waits for this report of every thread */
    for (;;) {
        w->last_job = wait_for_job(t, w);
        if (!t->fn)
            return NULL;
        run_job(t, w, JOB_N(w->last_job));
        finish_job(t);
    }
}

/* ---- the opener's side ---- */

static void park_opener(struct par_team *t)
{
    unsigned left;

    atomic_store(&t->opener_parked, 1);
    while ((left = atomic_load(&t->n_left)) != 0) {
        count(&t->workers[0].n_parks);
        futex_wait(&t->n_left, left);
    }
    atomic_store_explicit(&t->opener_parked, 0, memory_order_relaxed);
}

static void wait_for_workers(struct par_team *t)
{
    struct spin s = {0};

    while (atomic_load_explicit(&t->n_left, memory_order_acquire) != 0) {
        if (!spin_on(&s, t->spin_ns)) {
            park_opener(t);
            break;
        }
    }
    add(&t->workers[0].wait_ns, spin_waited_ns(&s));
}

/* Hand a job to threads 1 .. n-1; the others see nothing of it and stay parked. */
static void publish(struct par_team *t, int n, par_fn fn, void *arg)
{
    uint64_t old = atomic_load_explicit(&t->job, memory_order_relaxed);

    t->fn = fn;
    t->arg = arg;
    atomic_store_explicit(&t->n_left, (unsigned)n - 1, memory_order_relaxed);
    atomic_store(&t->job, (((old >> JOB_N_BITS) + 1) << JOB_N_BITS) | (uint64_t)n);
    for (int i = 1; i < n; i++) {
        atomic_uint *parked = &t->workers[i].parked;

        if (atomic_load(parked) && atomic_exchange(parked, 0))
            futex_wake(parked, 1);
    }
}

void par_team_run(struct par_team *t, int n_threads, par_fn fn, void *arg)
{
    if (t->pin)
        cpu_pin_again(t->workers[0].cpu_wanted); /* where this thread has several teams */
    if (n_threads > 1)
        publish(t, n_threads, fn, arg);
    t->workers[0].self.n = n_threads;
    fn(arg, &t->workers[0].self);
    atomic_store_explicit(&t->workers[0].cpu_seen, cpu_current(), memory_order_relaxed);
    count(&t->workers[0].n_runs);
    if (n_threads > 1)
        wait_for_workers(t);
}

static void barrier_park(struct par_group *g, struct worker *w, unsigned generation)
{
    /* the same Dekker pair as above: n_parked before generation, and the last one to
     * arrive the other way round */
    atomic_fetch_add(&g->n_parked, 1);
    while (atomic_load(&g->generation) == generation) {
        count(&w->n_parks);
        futex_wait(&g->generation, generation);
    }
    atomic_fetch_sub(&g->n_parked, 1);
}

static void meet(struct par_group *g, unsigned n, struct par_self *self)
{
    struct par_team *t = self->team;
    struct worker *w = &t->workers[self->id];
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
            futex_wake(&g->generation, INT_MAX);
        return;
    }
    while (atomic_load_explicit(&g->generation, memory_order_acquire) == generation) {
        if (!spin_on(&s, t->spin_ns)) {
            barrier_park(g, w, generation);
            break;
        }
    }
    add(&w->wait_ns, spin_waited_ns(&s));
}

void par_barrier(struct par_self *self)
{
    meet(&self->team->all, (unsigned)self->n, self);
}

void par_group_init(struct par_group *g, int first, int n)
{
    *g = (struct par_group){.first = first, .n = n};
}

void par_group_barrier(struct par_group *g, struct par_self *self)
{
    meet(g, (unsigned)g->n, self);
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
        struct worker *w = &t->workers[i];

        w->cpu_wanted = t->pin ? cpus[i] : -1;
        w->self = (struct par_self){.id = i, .n = 1, .cpu = w->cpu_wanted, .team = t};
        atomic_init(&w->cpu_seen, -1);
    }
}

static int start_workers(struct par_team *t)
{
    int rc = OK;

    atomic_store(&t->n_left, (unsigned)t->n - 1);
    for (; t->n_started < t->n - 1 && rc == OK; t->n_started += rc == OK) {
        struct worker *w = &t->workers[t->n_started + 1];

        rc = thread_start(&w->thread, 0, worker_main, w, "team");
    }
    if (rc != OK) /* those that there will not be */
        atomic_fetch_sub(&t->n_left, (unsigned)(t->n - 1 - t->n_started));
    wait_for_workers(t);
    if (rc != OK)
        return err_prefix(rc, "thread %d of %d", t->n_started + 1, t->n);
    for (int i = 1; i < t->n; i++)
        if (t->workers[i].pin_failed)
            return err_set(ERR_IO, "team: thread %d cannot be pinned to CPU %d", i,
                           t->workers[i].cpu_wanted);
    return OK;
}

int par_team_open(struct par_team **out, const int *cpus, int n, int pin)
{
    struct par_team *t;
    int rc;

    *out = NULL;
    if (n < 1 || n >= TEAM_MAX)
        return err_set(ERR_ARG, "team: threads: expected 1 .. %d, found %d", TEAM_MAX - 1,
                       n);
    if (pin && !cpus)
        return err_set(ERR_ARG, "team: pinning needs a list of CPUs");
    t = mem_new(MEM_TEAM, 1, sizeof(*t) + (size_t)n * sizeof(struct worker));
    if (!t)
        return ERR_NOMEM;
    t->n = n;
    t->pin = pin != 0;
    t->spin_ns = pin && cpus_distinct(cpus, n) ? SPIN_NS : SPIN_SHARED_NS;
    init_workers(t, cpus);
    rc = start_workers(t); /* before this thread's pinning, which they would inherit */
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
    publish(t, t->n_started + 1, NULL, NULL);
    for (int i = 1; i <= t->n_started; i++)
        pthread_join(t->workers[i].thread, NULL);
    if (t->pin)
        cpu_pin_end();
    mem_free(t);
}

int par_team_size(const struct par_team *t)
{
    return t->n;
}

void par_team_add_wait(struct par_team *t, int thread, uint64_t ns)
{
    add(&t->workers[thread].wait_ns, ns);
}

uint64_t par_team_spin_ns(const struct par_team *t)
{
    return t->spin_ns;
}

void par_team_stat(const struct par_team *t, int thread, struct par_thread_stat *out)
{
    const struct worker *w = &t->workers[thread];

    *out = (struct par_thread_stat){
        .cpu_wanted = w->cpu_wanted,
        .cpu_seen = atomic_load_explicit(&w->cpu_seen, memory_order_relaxed),
        .n_runs = atomic_load_explicit(&w->n_runs, memory_order_relaxed),
        .n_parks = atomic_load_explicit(&w->n_parks, memory_order_relaxed),
        .wait_ns = atomic_load_explicit(&w->wait_ns, memory_order_relaxed),
    };
}
