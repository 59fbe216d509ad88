#include "experiments/study/support/compare.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "base/stats_interval.h"

static double *part_of(const struct study_compare *c, int i, int part)
{
    return c->parts + (size_t)(i * STUDY_PARTS_MAX + part) * (size_t)(c->max_rounds + 1);
}

static int one_trial(void *arg, int i, struct measure_trial *t)
{
    struct study_compare *c = arg;
    int n_done = 0;

    for (int k = 0; k < c->n; k++)
        n_done += c->n_trials[k];
    if (c->doing)
        study_progress(c->cell,
                       c->from + (1 - c->from) *
                                     fmin(1, n_done / (c->n * (c->max_rounds + 1.0))),
                       c->doing);
    c->running = i;
    c->round = c->n_trials[i]++;
    return c->trial(c->arg, i, t);
}

int study_compare(struct study_compare *c, struct study_cell *cell, int n, int64_t rounds,
                  measure_fn trial, void *arg)
{
    struct measure_opts how = c->how;

    study_compare_close(c);
    if (rounds > 0)
        how = (struct measure_opts){MEASURE_EXACTLY((int)rounds)};
    c->cell = cell;
    c->n = n;
    c->max_rounds = how.max_rounds;
    c->trial = trial;
    c->arg = arg;
    c->parts = mem_new(MEM_HARNESS, (size_t)(n * STUDY_PARTS_MAX),
                       (size_t)(c->max_rounds + 1) * sizeof(*c->parts));
    if (!c->parts)
        return ERR_NOMEM;
    memset(c->n_trials, 0, sizeof(c->n_trials));
    TRY(measure_open(&c->measure, n, c->max_rounds));
    TRY(measure_compare(c->measure, n, &how, one_trial, c));
    for (int i = 0; i < n; i++) {
        const double *times = measure_times(c->measure, i, &c->n_rounds);

        measure_report(c->measure, i, &c->time[i]);
        if (c->series)
            study_series(cell, c->series[i], "s", times, (size_t)c->n_rounds);
    }
    return OK;
}

void study_compare_close(struct study_compare *c)
{
    measure_close(&c->measure);
    mem_free(c->parts);
    c->parts = NULL;
}

void study_compare_put(struct study_compare *c, int part, double value)
{
    part_of(c, c->running, part)[c->round] = value;
}

const double *study_compare_part(const struct study_compare *c, int i, int part)
{
    int n_before = c->n_trials[i] - c->n_rounds; /* none in a test's scripted rounds */

    return part_of(c, i, part) + (n_before > 0 ? n_before : 0);
}

double study_compare_median(const struct study_compare *c, int i, int part)
{
    return stats_median(study_compare_part(c, i, part), (size_t)c->n_rounds);
}

void study_compare_series(const struct study_compare *c, const char *name,
                          const char *unit, int i, int part)
{
    study_series(c->cell, name, unit, study_compare_part(c, i, part),
                 (size_t)c->n_rounds);
}

const double *study_compare_times(const struct study_compare *c, int i)
{
    int n_rounds;

    return measure_times(c->measure, i, &n_rounds);
}

void study_compare_again(const struct study_compare *c, const char *suffix, int again,
                         int a)
{
    struct measure_report r;
    char name[64];

    measure_ratio(c->measure, again, a, &r);
    snprintf(name, sizeof(name), "s_again%s", suffix);
    study_series(c->cell, name, "s", study_compare_times(c, again), (size_t)c->n_rounds);
    snprintf(name, sizeof(name), "ratio_again%s", suffix);
    study_value_interval(c->cell, name, r.estimate, r.lo, r.hi,
                         "no round was undisturbed");
    snprintf(name, sizeof(name), "detectable_frac%s", suffix);
    study_value(c->cell, name, stats_detectable_frac(r.lo, r.hi),
                "no round was undisturbed");
}

double study_compare_ratio(const struct study_compare *c, const char *name, int a, int b,
                           double less)
{
    struct measure_report r;

    measure_ratio(c->measure, a, b, &r);
    study_value_interval(c->cell, name, r.estimate - less, r.lo - less, r.hi - less,
                         "no round was undisturbed");
    return r.estimate - less;
}
