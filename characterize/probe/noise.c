/* How far the same work differs from one time to the next: what a difference between two
 * results has to exceed. Spread of computing and of reading (the deviation within short
 * runs over their mean), and how much of the CPUs the host took away meanwhile. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/stats.h"
#include "characterize/peak/peak.h"
#include "characterize/trial.h"
#include "measure/noise.h"

#define TRIAL_S  0.001
#define GROUP    10 /* trials whose deviation is one sample */
#define N_SLICES 8

struct job {
    const struct probe_isa *isa;
    struct probe_buffer buffer; /* empty: compute */
    int64_t n_rounds;
    int slice;
    volatile double sink;
    volatile uint64_t sum;
};

static void compute(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    double v = j->isa->arith[0].run(j->n_rounds);

    (void)n_threads;
    if (id == 0)
        j->sink = v;
}

static void read_slice(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    size_t part = j->buffer.part_bytes, slice = part / N_SLICES;
    uint64_t v = j->isa->read[0](
        j->buffer.p + (size_t)id * part + (size_t)j->slice * slice, slice);

    (void)n_threads;
    if (id == 0)
        j->sum = v;
}

static void calibrate(struct probe_ctx *c, struct job *j)
{
    struct measure_trial t;

    j->n_rounds = 1000;
    do {
        j->n_rounds *= 4;
        t = probe_time(c->team, 1, compute, j);
    } while (t.seconds < TRIAL_S / 8);
    j->n_rounds = (int64_t)((double)j->n_rounds * TRIAL_S / t.seconds) + 1;
}

/* One deviation; every trial counts, the disturbed ones most of all. */
static double deviation(struct probe_ctx *c, struct job *j, probe_body body)
{
    double x[GROUP];

    for (int i = 0; i < GROUP; i++) {
        x[i] = probe_time(c->team, c->n_threads_max, body, j).seconds;
        j->slice = (j->slice + 1) % N_SLICES;
    }
    return stats_std(x, GROUP) / stats_mean(x, GROUP);
}

MUST static int measure(struct probe_ctx *c, struct job *j, const char *name,
                        probe_body body, double budget_s)
{
    uint64_t end_ns = clock_ns() + (uint64_t)(budget_s * 1e9);
    struct measure_report r;
    double x[PROBE_TRIALS_MAX], mad;
    int n = 0;

    do {
        x[n++] = deviation(c, j, body);
    } while (n < PROBE_TRIALS_MIN || (n < PROBE_TRIALS_MAX && clock_ns() < end_ns));
    mad = stats_mad(x, (size_t)n);
    r.estimate = stats_median(x, (size_t)n); /* of deviations, which are not trials */
    r.lo = r.estimate - mad;
    r.hi = r.estimate + mad;
    r.n = n;
    return probe_report(c, name, "1", c->n_threads_max, &r);
}

/* The time of all CPUs of this process together, as the kernel counts it. */
MUST static int report_steal(struct probe_ctx *c, struct measure_noise *n)
{
    const char *name = "noise_steal_ns_per_s", *unit = "ns/s";
    struct measure_report r = {.n = 1};

    TRY(measure_noise_end(n));
    if (n->before.steal_ns < 0 || n->after.steal_ns < 0)
        return probe_report_none(c, name, unit, c->n_threads_max,
                                 "the kernel counts no steal time");
    r.estimate = (double)(n->after.steal_ns - n->before.steal_ns) /
                 ((double)(n->after.wall_ns - n->before.wall_ns) * 1e-9);
    r.lo = r.hi = r.estimate;
    return probe_report(c, name, unit, c->n_threads_max, &r);
}

static int run(struct probe_ctx *c)
{
    struct job j = {.isa = probe_widest()};
    struct measure_noise noise;
    int rc = measure_noise_begin(&noise);

    if (rc != OK)
        return rc;
    calibrate(c, &j);
    rc = measure(c, &j, "noise_compute_cv", compute, c->budget_s / 2);
    if (rc != OK)
        return rc;
    rc = probe_buffer_open(&j.buffer, c, c->n_threads_max, N_SLICES * PROBE_CHUNK);
    if (rc == ERR_NOMEM)
        rc = probe_report_none(c, "noise_read_cv", "1", c->n_threads_max, err_msg());
    else if (rc == OK)
        rc = measure(c, &j, "noise_read_cv", read_slice, c->budget_s / 2);
    probe_buffer_close(&j.buffer);
    return rc == OK ? report_steal(c, &noise) : rc;
}

const struct probe probe_noise = {
    .name = "noise",
    .help = "spread of computing and reading over repeats; time stolen by the host",
    .full = true,
    .run = run,
};
