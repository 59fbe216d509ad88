/* The most operations a second of every kind of arithmetic this program knows, by
 * instruction set, for 1 and n threads. What the processor lacks is reported as such. */
#include <stdio.h>

#include "base/mem.h"
#include "characterize/peak/peak.h"
#include "characterize/trial.h"
#include "cpu/cpu.h"

/* One trial: long against the clock and the barrier (some 0.1 us), short against the time
 * slices of other programs, so that most trials run undisturbed. */
#define TRIAL_S 0.002
/* More loops than files x PROBE_ARITH_MAX can hold are refused, not cut. */
#define LOOPS_MAX 32

struct loop {
    const struct probe_isa *isa;
    const struct probe_arith *arith;
    int64_t n_rounds;
    struct probe_series series[2]; /* 1 thread, all threads */
    volatile double sink;          /* somebody must want the sum */
};

static void run_loop(void *arg, int id, int n_threads)
{
    struct loop *l = arg;
    double sum = l->arith->run(l->n_rounds);

    (void)n_threads;
    if (id == 0)
        l->sink = sum;
}

static void calibrate(struct probe_ctx *c, struct loop *l)
{
    struct probe_time t;

    l->n_rounds = 1000;
    do {
        l->n_rounds *= 4;
        t = probe_time(c->team, 1, run_loop, l);
    } while (t.seconds < TRIAL_S / 8);
    l->n_rounds = (int64_t)((double)l->n_rounds * TRIAL_S / t.seconds) + 1;
}

static void trial(struct probe_ctx *c, struct loop *l, int n_threads,
                  struct probe_series *s)
{
    struct probe_time t = probe_time(c->team, n_threads, run_loop, l);

    probe_series_add(s, l->arith->ops * (double)l->n_rounds * n_threads, &t);
}

MUST static int report(struct probe_ctx *c, const struct loop *l, int i_count,
                       int n_threads)
{
    char name[48], why[96];
    uint64_t lacking = l->isa->isa & ~cpu_isa_detected();

    snprintf(name, sizeof(name), "peak_%s_%s", l->arith->family, l->isa->name);
    if (!lacking)
        return probe_report_best(c, name, l->arith->unit, n_threads, &l->series[i_count],
                                 1);
    snprintf(why, sizeof(why), "this processor has no %s", l->isa->name);
    return probe_report_none(c, name, l->arith->unit, n_threads, why);
}

MUST static int list_loops(struct loop *loops, int *n)
{
    *n = 0;
    for (int i = 0; probe_isas[i]; i++) {
        for (int k = 0; k < PROBE_ARITH_MAX && probe_isas[i]->arith[k].run; k++) {
            if (*n == LOOPS_MAX)
                return err_set(ERR_LIMIT, "peak: more than %d loops", LOOPS_MAX);
            loops[*n].isa = probe_isas[i];
            loops[(*n)++].arith = &probe_isas[i]->arith[k];
        }
    }
    return OK;
}

static void measure(struct probe_ctx *c, struct loop *loops, int n, const int *counts,
                    int n_counts)
{
    uint64_t end_ns = probe_deadline_ns(c->budget_s);
    int more;

    for (int i = 0; i < n; i++) {
        if ((loops[i].isa->isa & ~cpu_isa_detected()) == 0)
            calibrate(c, &loops[i]);
    }
    do {
        more = 0;
        for (int i = 0; i < n; i++) {
            for (int k = 0; loops[i].n_rounds && k < n_counts; k++)
                trial(c, &loops[i], counts[k], &loops[i].series[k]);
            more |= loops[i].n_rounds && probe_more(loops[i].series, n_counts, end_ns);
        }
    } while (more);
}

static int run(struct probe_ctx *c)
{
    int counts[2] = {1, c->n_threads_max}, n_counts = c->n_threads_max > 1 ? 2 : 1, n, rc;
    struct loop *loops = mem_new(MEM_HARNESS, LOOPS_MAX, sizeof(*loops));

    if (!loops)
        return ERR_NOMEM;
    rc = list_loops(loops, &n);
    if (rc != OK)
        goto out;
    measure(c, loops, n, counts, n_counts);
    for (int i = 0; i < n; i++) {
        for (int k = 0; rc == OK && k < n_counts; k++)
            rc = report(c, &loops[i], k, counts[k]);
    }
out:
    mem_free(loops);
    return rc;
}

const struct probe probe_peak = {
    .name = "peak",
    .help = "peak operations a second by instruction family for 1 and n threads",
    .run = run,
};
