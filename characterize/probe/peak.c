/* The most operations a second of every kind of arithmetic this program knows, by
 * instruction set, for 1 and n threads. What the processor lacks is reported as such. */
#include <math.h>
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
    volatile double sink; /* uses the sum, so that the compiler keeps the loop */
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
    struct measure_trial t;

    l->n_rounds = 1000;
    do {
        l->n_rounds *= 4;
        t = probe_time(c->team, 1, run_loop, l);
    } while (t.seconds < TRIAL_S / 8);
    l->n_rounds = (int64_t)((double)l->n_rounds * TRIAL_S / t.seconds) + 1;
}

/* Each loop on one thread, unless only more are asked for, and on all. */
struct loops {
    struct loop v[LOOPS_MAX];
    struct par_team *team;
    int n, n_counts, counts[2];
};

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct loops *l = arg;
    struct loop *loop = &l->v[i / l->n_counts];

    t->seconds = NAN;
    if (loop->n_rounds)
        *t = probe_time(l->team, l->counts[i % l->n_counts], run_loop, loop);
    return OK;
}

MUST static int report(struct probe_ctx *c, const struct loops *all,
                       const struct measure *m, int i)
{
    const struct loop *l = &all->v[i / all->n_counts];
    int n_threads = all->counts[i % all->n_counts];
    char name[48], why[96];
    uint64_t lacking = l->isa->isa & ~cpu_isa_detected();

    snprintf(name, sizeof(name), "peak_%s_%s", l->arith->family, l->isa->name);
    if (!lacking)
        return probe_report_rate(c, name, l->arith->unit, n_threads, m, i, 1,
                                 l->arith->ops * (double)l->n_rounds * n_threads);
    snprintf(why, sizeof(why), "this processor has no %s", l->isa->name);
    return probe_report_none(c, name, l->arith->unit, n_threads, why);
}

MUST static int list_loops(struct loops *l)
{
    for (int i = 0; probe_isas[i]; i++) {
        for (int k = 0; k < PROBE_ARITH_MAX && probe_isas[i]->arith[k].run; k++) {
            if (l->n == LOOPS_MAX)
                return err_set(ERR_LIMIT, "peak: more than %d loops", LOOPS_MAX);
            l->v[l->n].isa = probe_isas[i];
            l->v[l->n++].arith = &probe_isas[i]->arith[k];
        }
    }
    return OK;
}

static int run(struct probe_ctx *c)
{
    struct loops *l = mem_new(MEM_HARNESS, 1, sizeof(*l));
    struct measure *m = NULL;
    int rc;

    if (!l)
        return ERR_NOMEM;
    l->team = c->team;
    if (c->n_threads_min <= 1)
        l->counts[l->n_counts++] = 1;
    if (c->n_threads_max > 1)
        l->counts[l->n_counts++] = c->n_threads_max;
    rc = list_loops(l);
    for (int i = 0; i < l->n && rc == OK; i++)
        if ((l->v[i].isa->isa & ~cpu_isa_detected()) == 0)
            calibrate(c, &l->v[i]);
    if (rc == OK)
        rc = probe_measure(&m, l->n * l->n_counts, c->budget_s, trial, l);
    for (int i = 0; i < l->n * l->n_counts && rc == OK; i++)
        rc = report(c, l, m, i);
    measure_close(&m);
    mem_free(l);
    return rc;
}

const struct probe probe_peak = {
    .name = "peak",
    .help = "peak operations a second by instruction family for 1 and n threads",
    .bound = true,
    .run = run,
};
