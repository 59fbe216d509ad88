/* What it costs the engine's threads to wait for each other: some ten times a layer. */
#include "base/clock.h"
#include "characterize/trial.h"

#define N_BARRIERS 1000 /* a trial: 1 ms at 1 us */

static void barriers(void *arg, struct par_self *self)
{
    struct probe_time *t = arg;
    uint64_t start_ns;

    par_barrier(self);
    start_ns = clock_ns();
    for (int i = 0; i < N_BARRIERS; i++)
        par_barrier(self);
    if (self->id == 0)
        t->seconds = (double)(clock_ns() - start_ns) * 1e-9;
}

MUST static int measure(struct probe_ctx *c, int n_threads, double budget_s)
{
    uint64_t end_ns = probe_deadline_ns(budget_s);
    struct probe_series s = {0};
    struct probe_time t = {0};

    do {
        par_team_run(c->team, n_threads, barriers, &t);
        probe_series_add_ns(&s, N_BARRIERS, &t);
    } while (probe_more(&s, 1, end_ns));
    return probe_report_best(c, "barrier_ns", "ns", n_threads, &s, 1);
}

static int run(struct probe_ctx *c)
{
    int counts[PROBE_COUNTS_MAX], n, rc = OK;

    if (c->n_threads_max < 2)
        return probe_report_none(c, "barrier_ns", "ns", 1,
                                 "one CPU only: nobody to wait for");
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
