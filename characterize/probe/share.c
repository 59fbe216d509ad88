/* Do two CPUs share a core? A thread computes alone, then with another at work on the
 * same: on cores of their own both keep their speed, on one core each has half of it. A
 * virtual machine's "1 thread per core" proves nothing. */
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "characterize/peak/peak.h"
#include "characterize/trial.h"

#define TRIAL_S 0.002
/* The partner checks this often a trial whether it may end: it must work as long as the
 * first thread does, however late it began. */
#define N_CHECKS 64
/* Every CPU is tried with the first; beyond these many only some of them. */
#define PARTNERS_MAX 16

struct job {
    const struct probe_arith *arith;
    int64_t n_rounds;
    struct par_team *team;
    int partner; /* thread; 0: alone */
    int with;    /* the partner when not alone */
    double seconds;
    volatile double sink[2];
    atomic_int partner_works, done;
};

static void compute(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    uint64_t start_ns;

    (void)n_threads;
    if (id == 0) {
        while (j->partner && !atomic_load(&j->partner_works))
            ;
        start_ns = clock_ns();
        j->sink[0] = j->arith->run(j->n_rounds);
        j->seconds = (double)(clock_ns() - start_ns) * 1e-9;
        atomic_store(&j->done, 1);
    } else if (id == j->partner) {
        atomic_store(&j->partner_works, 1);
        while (!atomic_load(&j->done))
            j->sink[1] = j->arith->run(j->n_rounds / N_CHECKS + 1);
    }
}

static struct measure_trial run_beside(struct job *j, int partner)
{
    struct measure_trial t;

    j->partner = partner;
    j->partner_works = j->done = 0;
    t = probe_time(j->team, partner + 1, compute, j);
    t.seconds = j->seconds;
    return t;
}

static void calibrate(struct job *j)
{
    struct measure_trial t;

    j->n_rounds = 1000;
    do {
        j->n_rounds *= 4;
        t = run_beside(j, 0);
    } while (t.seconds < TRIAL_S / 8);
    j->n_rounds = (int64_t)((double)j->n_rounds * TRIAL_S / t.seconds) + 1;
}

/* Alone, then while the partner computes. */
static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    *t = run_beside(j, i == 0 ? 0 : j->with);
    return OK;
}

/* The speed of the first over its speed alone: the time alone over that with the other computing,
 * round by round, so that a change of the clock's frequency hits both. */
MUST static int measure(struct probe_ctx *c, struct job *j, int partner, double budget_s)
{
    struct measure *m = NULL;
    struct measure_report r;
    char name[48];
    int rc;

    j->with = partner;
    snprintf(name, sizeof(name), "share_speed_cpu%d_cpu%d", probe_cpu(c, 0),
             probe_cpu(c, partner));
    rc = probe_measure(&m, 2, budget_s, trial, j);
    if (rc != OK)
        return rc;
    measure_ratio(m, 0, 1, &r);
    measure_close(&m);
    return probe_report(c, name, "1", 2, &r);
}

static int run(struct probe_ctx *c)
{
    struct job j = {.arith = &probe_widest()->arith[0], .team = c->team};
    int n = c->n_threads_max - 1, rc = OK;

    if (n < 1)
        return probe_report_none(c, "share_speed", "1", 1,
                                 "one CPU only: no other to share a core with");
    n = n > PARTNERS_MAX ? PARTNERS_MAX : n;
    calibrate(&j);
    for (int i = 1; i <= n && rc == OK; i++) /* spread over all, the last one included */
        rc = measure(c, &j, (int)((int64_t)i * (c->n_threads_max - 1) / n),
                     c->budget_s / n);
    return rc;
}

const struct probe probe_share = {
    .name = "share",
    .help = "speed of a thread while another computes, over its speed alone",
    .full = true,
    .run = run,
};
