/* Threads of our own: a job is one atomic word that they poll, and on which they park. Threads that
 * a phase does not use see nothing of it. */
#include "base/thread.h"
#include "cpu/cpu.h"
#include "par/spin.h"
#include "par/team_parts.h"

/* A job word holds the job's number (never 0, never repeated) and how many threads it wants. */
#define JOB_N_BITS  16
#define JOB_N(word) ((int)((word) & ((1u << JOB_N_BITS) - 1)))

/* ---- the worker's side ---- */

static bool job_is_mine(const struct par_worker *w, uint64_t word)
{
    return word != w->last_job && w->self.id < JOB_N(word);
}

static uint64_t wait_for_job(struct par_team *t, struct par_worker *w)
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
        par_team_add(&w->n_parks, 1);
        par_futex_wait(&w->parked, 1);
    }
    atomic_store_explicit(&w->parked, 0, memory_order_relaxed);
    return word;
}

static void finish_job(struct par_team *t)
{
    if (atomic_fetch_sub(&t->n_left, 1) == 1 && atomic_load(&t->opener_parked))
        par_futex_wake(&t->n_left, 1);
}

static void *worker_main(void *arg)
{
    struct par_worker *w = arg;
    struct par_team *t = w->self.team;

    w->pin_failed = t->pin && cpu_pin_self(w->cpu_wanted) != OK;
    finish_job(t); /* par_team_open() waits for this report of every thread */
    for (;;) {
        w->last_job = wait_for_job(t, w);
        if (!t->fn)
            return NULL;
        par_team_run_job(t, w, JOB_N(w->last_job));
        finish_job(t);
    }
}

/* ---- the opener's side ---- */

static void park_opener(struct par_team *t)
{
    unsigned left;

    atomic_store(&t->opener_parked, 1);
    while ((left = atomic_load(&t->n_left)) != 0) {
        par_team_add(&t->workers[0].n_parks, 1);
        par_futex_wait(&t->n_left, left);
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
    par_team_add(&t->workers[0].wait_ns, spin_waited_ns(&s));
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
            par_futex_wake(parked, 1);
    }
}

static void run(struct par_team *t, int n, par_fn fn, void *arg)
{
    publish(t, n, fn, arg);
    par_team_run_job(t, &t->workers[0], n);
    wait_for_workers(t);
}

static int start_workers(struct par_team *t)
{
    int rc = OK;

    atomic_store(&t->n_left, (unsigned)t->n - 1);
    for (; t->n_started < t->n - 1 && rc == OK; t->n_started += rc == OK) {
        struct par_worker *w = &t->workers[t->n_started + 1];

        rc = thread_start(&w->thread, 0, worker_main, w, "team");
    }
    if (rc != OK) /* those that there will not be */
        atomic_fetch_sub(&t->n_left, (unsigned)(t->n - 1 - t->n_started));
    wait_for_workers(t);
    if (rc != OK)
        return err_prefix(rc, "thread %d of %d", t->n_started + 1, t->n);
    return par_team_pinned(t);
}

static void stop(struct par_team *t)
{
    publish(t, t->n_started + 1, NULL, NULL);
    for (int i = 1; i <= t->n_started; i++)
        pthread_join(t->workers[i].thread, NULL);
}

const struct par_team_kind par_team_kind_pthread = {
    .name = "pthread",
    .help = "threads of this engine, which spin and then sleep on a futex",
    .start = start_workers,
    .stop = stop,
    .run = run,
};

int par_team_open(struct par_team **out, const int *cpus, int n, int pin)
{
    return par_team_open_by(out, &par_team_kind_pthread, cpus, n, pin);
}
