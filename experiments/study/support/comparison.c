#include "experiments/study/support/comparison.h"

#include <math.h>
#include <stdio.h>

/* --- libraries */

static void keep_why(struct study_baselines *b, int i)
{
    snprintf(b->why[i], sizeof(b->why[i]), "%s", err_msg());
}

void study_baselines_open(struct study_baselines *b, const struct gemm_baseline_opts *o)
{
    for (int i = 0; gemm_baseline_names[i] && i < STUDY_BASELINES_MAX; i++)
        if (!b->b[i] && gemm_baseline_open(&b->b[i], gemm_baseline_names[i], o) != OK)
            keep_why(b, i);
}

void study_baselines_close(struct study_baselines *b)
{
    for (int i = 0; i < STUDY_BASELINES_MAX; i++)
        gemm_baseline_close(&b->b[i]);
}

/* --- entries */

int study_comparison_add(struct study_comparison *c, const char *name,
                         struct tune_bench *bench, const struct kern_schedule *s)
{
    c->entries[c->n] = (struct study_entry){.name = name, .bench = bench, .schedule = *s};
    c->n_ours = ++c->n;
    return c->n - 1;
}

bool study_comparison_add_baseline(struct study_comparison *c, int i, const char *type,
                                   const struct tune_shape *shape, bool warm,
                                   double budget_s)
{
    struct gemm_baseline *b = c->baselines->b[i];

    if (!b) /* its reason stands from when it was opened */
        return false;
    if (gemm_baseline_shape(b, type, shape->m, shape->n, shape->k, warm, budget_s) !=
        OK) {
        keep_why(c->baselines, i);
        return false;
    }
    c->entries[c->n++] =
        (struct study_entry){.name = gemm_baseline_names[i], .baseline = i};
    return true;
}

/* --- rounds */

static void nothing(void *arg, struct par_self *self)
{
    (void)arg, (void)self;
}

static int run_entry(void *arg, int i, struct measure_trial *t)
{
    struct study_comparison *c = arg;
    struct study_entry *e = &c->entries[i];

    if (e->bench) {
        if (c->team)
            par_team_run(c->team, c->n_threads, nothing, NULL);
        return tune_run_once(e->bench, &e->schedule, c->n_threads, &t->seconds);
    }
    if (gemm_baseline_run(c->baselines->b[e->baseline], &t->seconds) != OK) {
        keep_why(c->baselines, e->baseline);
        gemm_baseline_close(&c->baselines->b[e->baseline]);
        t->seconds = NAN;
    }
    return OK;
}

int study_comparison_run(struct study_comparison *c, int n_max, double seconds)
{
    const struct measure_opts o = {.min_rounds = 3,
                                   .max_rounds = n_max,
                                   .budget_s = fmax(seconds, 1e-9),
                                   .keep_all = true};

    study_comparison_close(c);
    TRY(measure_open(&c->measure, c->n, n_max));
    TRY(measure_compare(c->measure, c->n, &o, run_entry, c));
    for (int i = 0; i < c->n; i++) {
        measure_report(c->measure, i, &c->entries[i].time);
        measure_times(c->measure, i, &c->n_rounds);
    }
    return OK;
}

void study_comparison_close(struct study_comparison *c)
{
    measure_close(&c->measure);
}

/* --- the result */

const double *study_comparison_times(const struct study_comparison *c, int i)
{
    int n_rounds;

    return measure_times(c->measure, i, &n_rounds);
}

int study_comparison_best_baseline(const struct study_comparison *c)
{
    int best = -1;

    for (int i = c->n_ours; i < c->n; i++)
        if (!isnan(c->entries[i].time.estimate) &&
            (best < 0 || c->entries[i].time.estimate < c->entries[best].time.estimate))
            best = i;
    return best;
}

void study_comparison_ratio(const struct study_comparison *c, int ours, int other,
                            struct measure_report *out)
{
    measure_ratio(c->measure, other, ours, out);
}
