/* The cost for two CPUs to hand a line of memory to and fro: shared caches, rings and
 * packages that no tool reports show here. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "characterize/trial.h"
#include "cpu/cpu.h"

#define N_ROUNDS 2000 /* there and back: 1 ms at 250 ns */
/* Beyond these many threads not every pair is worth its time: then each with the first and
 * with its neighbour. */
#define ALL_PAIRS_MAX 12
#define SPINS         4096 /* then let another program run: it may hold our partner up */

struct job {
    struct par_team *team;
    int a, b;                      /* threads */
    _Alignas(128) atomic_int turn; /* 128: lines that are fetched in pairs */
    char gap[124];
};

static void wait_turn(struct job *j, int turn)
{
    for (int i = 0; atomic_load_explicit(&j->turn, memory_order_acquire) != turn; i++) {
        if (i < SPINS)
            cpu_relax();
        else
            sched_yield();
    }
}

static void ping_pong(void *arg, int id, int n_threads)
{
    struct job *j = arg;

    (void)n_threads;
    for (int i = 0; id == j->a && i < N_ROUNDS; i++) {
        atomic_store_explicit(&j->turn, 1, memory_order_release);
        wait_turn(j, 0);
    }
    for (int i = 0; id == j->b && i < N_ROUNDS; i++) {
        wait_turn(j, 1);
        atomic_store_explicit(&j->turn, 0, memory_order_release);
    }
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    (void)i;
    *t = probe_time(j->team, j->b + 1, ping_pong, j);
    return OK;
}

MUST static int measure(struct probe_ctx *c, int a, int b, double budget_s)
{
    struct job j = {.team = c->team, .a = a, .b = b};
    struct measure *m = NULL;
    char name[48];
    int rc = probe_measure(&m, 1, budget_s, trial, &j);

    snprintf(name, sizeof(name), "handoff_ns_cpu%d_cpu%d", probe_cpu(c, a),
             probe_cpu(c, b));
    if (rc == OK)
        rc = probe_report_ns(c, name, 2, m, 0, 2.0 * N_ROUNDS);
    measure_close(&m);
    return rc;
}

/* A brief measurement pairs the first CPU with those after it, and with the last. */
static int wanted(const struct probe_ctx *c, int a, int b)
{
    if (!c->full)
        return a == 0 && b > 0 && (b <= ALL_PAIRS_MAX || b == c->n_threads_max - 1);
    return a < b && (c->n_threads_max <= ALL_PAIRS_MAX || a == 0 || b == a + 1);
}

static int run(struct probe_ctx *c)
{
    int n = 0, rc = OK;

    if (c->n_threads_max < 2)
        return probe_report_none(c, "handoff_ns", "ns", 1,
                                 "one CPU only: no other to hand to");
    for (int a = 0; a < c->n_threads_max; a++)
        for (int b = 0; b < c->n_threads_max; b++)
            n += wanted(c, a, b);
    for (int a = 0; a < c->n_threads_max; a++)
        for (int b = 0; b < c->n_threads_max && rc == OK; b++)
            if (wanted(c, a, b))
                rc = measure(c, a, b, c->budget_s / n);
    return rc;
}

const struct probe probe_handoff = {
    .name = "handoff",
    .help = "handing a cache line from one CPU to another",
    .full = true,
    .run = run,
};
