/* The cost for the engine's threads to wait for each other: some ten times a layer. */
#include "base/clock.h"
#include "characterize/trial.h"

#define N_BARRIERS 1000 /* a trial: 1 ms at 1 us */

struct job {
    struct par_team *team;
    int n_threads;
    double seconds;
};

static void barriers(void *arg, struct par_self *self)
{
    struct job *j = arg;
    uint64_t start_ns;

    par_barrier(self);
    start_ns = clock_ns();
    for (int i = 0; i < N_BARRIERS; i++)
        par_barrier(self);
    if (self->id == 0)
        j->seconds = (double)(clock_ns() - start_ns) * 1e-9;
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    (void)i;
    par_team_run(j->team, j->n_threads, barriers, j);
    t->seconds = j->seconds;
    return OK;
}

MUST static int measure(struct probe_ctx *c, int n_threads, double budget_s)
{
    struct job j = {c->team, n_threads, 0};
    struct measure *m = NULL;
    int rc = probe_measure(&m, 1, budget_s, trial, &j);

    if (rc == OK)
        rc = probe_report_ns(c, "barrier_ns", n_threads, m, 0, N_BARRIERS);
    measure_close(&m);
    return rc;
}

static int run(struct probe_ctx *c)
{
    int counts[PROBE_COUNTS_MAX], n, rc = OK;

    if (c->n_threads_max < 2)
        return probe_report_none(c, "barrier_ns", "ns", 1,
                                 "one CPU only: there is no other thread to wait for");
    n = probe_thread_counts(c->n_threads_max, counts);
    for (int i = 1; i < n && rc == OK; i++)
        rc = measure(c, counts[i], c->budget_s / n);
    return rc;
}

const struct probe probe_barrier = {
    .name = "barrier",
    .help = "the team's barrier for 2 .. n threads",
    .full = true,
    .run = run,
};
