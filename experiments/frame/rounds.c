/* Alternatives in turn, and what their trials say besides their time. */
#include "experiments/frame/frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "base/stats_interval.h"

/* The values that were put in the trials of an alternative. */
struct frame_var {
    double *x, *v; /* v: [max_rounds + 1], from `skip` on those that count */
    int id, way, skip;
};

static struct frame_var *var_of(const struct frame *f, const double *x)
{
    for (int i = 0; i < f->n_vars; i++)
        if (f->vars[i].x == x)
            return &f->vars[i];
    return NULL;
}

void frame_put(struct frame *f, double *x, double value)
{
    struct frame_turns *t = &f->turns;
    struct frame_var *v = var_of(f, x);
    size_t n = (size_t)t->max_rounds + 1;

    if (!v) {
        f->vars = mem_resize(MEM_HARNESS, f->vars, (size_t)f->n_vars + 1, sizeof(*v));
        v = &f->vars[f->n_vars++];
        v->x = x;
    }
    if (v->id != t->id) { /* the first time in these rounds */
        mem_free(v->v);
        *v = (struct frame_var){.x = x, .id = t->id, .way = t->running};
        v->v = mem_new(MEM_HARNESS, n, sizeof(*v->v));
        for (size_t i = 0; i < n; i++)
            v->v[i] = NAN;
    }
    v->v[f->round] = value;
}

const double *frame_each(const struct frame *f, const double *x)
{
    const struct frame_var *v = var_of(f, x);

    return v ? v->v + v->skip : NULL;
}

void frame_series(struct frame *f, const char *name, const char *unit, const double *x)
{
    const double *v = frame_each(f, x);

    study_series(f->cell, name, unit, v, v ? (size_t)f->n_rounds : 0);
}

static int one_trial(void *arg, int i, struct measure_trial *trial)
{
    struct frame *f = arg;
    struct frame_turns *t = &f->turns;
    int n_done = 0;

    for (int k = 0; k < t->n; k++)
        n_done += t->n_trials[k];
    if (t->doing)
        study_progress(f->cell,
                       f->progress + (1 - f->progress) *
                                         fmin(1, n_done / (t->n * (t->max_rounds + 1.0))),
                       t->doing);
    t->running = i;
    f->round = t->n_trials[i]++;
    return t->trial(t->arg, i, trial);
}

static void close_turns(struct frame_turns *t)
{
    measure_close(&t->measure);
    mem_free(t->n_trials);
    t->n_trials = NULL;
}

/* All that was put has its median; trials that warm up do not count. */
static void take_medians(struct frame *f)
{
    for (int i = 0; i < f->n_vars; i++) {
        struct frame_var *v = &f->vars[i];

        if (v->id != f->turns.id)
            continue;
        v->skip = f->turns.n_trials[v->way] - f->n_rounds;
        v->skip = v->skip > 0 ? v->skip : 0; /* a test's scripted rounds put nothing */
        *v->x = stats_median(v->v + v->skip, (size_t)f->n_rounds);
    }
}

int frame_rounds_by(struct frame *f, const char *doing, int n,
                    const struct measure_opts *how, measure_fn trial, void *arg)
{
    struct frame_turns *t = &f->turns;

    close_turns(t);
    *t = (struct frame_turns){.doing = doing,
                              .trial = trial,
                              .arg = arg,
                              .id = ++f->n_turns,
                              .n = n,
                              .max_rounds = how->max_rounds};
    t->n_trials = mem_new(MEM_HARNESS, (size_t)n, sizeof(*t->n_trials));
    TRY(measure_open(&t->measure, n, t->max_rounds));
    TRY(measure_compare(t->measure, n, how, one_trial, f));
    (void)measure_times(t->measure, 0, &f->n_rounds);
    take_medians(f);
    return OK;
}

int frame_rounds(struct frame *f, const char *doing, int n, int64_t rounds,
                 measure_fn trial, void *arg)
{
    return frame_rounds_by(
        f, doing, n, &(struct measure_opts){MEASURE_EXACTLY((int)rounds)}, trial, arg);
}

int frame_rounds_within(struct frame *f, const struct measure_opts *how, measure_fn trial,
                        void *arg, double *seconds)
{
    struct frame_turns outer = f->turns;
    int round = f->round, rc;

    f->turns.measure = NULL;
    f->turns.n_trials = NULL;
    rc = frame_rounds_by(f, NULL, 1, how, trial, arg);
    *seconds = rc == OK ? frame_seconds(f, 0) : NAN;
    close_turns(&f->turns);
    f->turns = outer;
    f->round = round;
    return rc;
}

double frame_seconds(const struct frame *f, int i)
{
    struct measure_report r;

    measure_report(f->turns.measure, i, &r);
    return r.estimate;
}

const double *frame_times(const struct frame *f, int i)
{
    int n_rounds;

    return measure_times(f->turns.measure, i, &n_rounds);
}

void frame_times_series(struct frame *f, const char *name, int i)
{
    study_series(f->cell, name, "s", frame_times(f, i), (size_t)f->n_rounds);
}

void frame_rate(struct frame *f, double *x, double amount, int i)
{
    struct measure_report r;

    measure_report(f->turns.measure, i, &r);
    *x = amount / r.estimate;
    frame_interval(f, x, amount / r.hi, amount / r.lo);
}

void frame_ratio(struct frame *f, double *x, int a, int b, double less)
{
    struct measure_report r;

    measure_ratio(f->turns.measure, a, b, &r);
    frame_set(f, x, r.estimate - less, "no round was undisturbed");
    frame_interval(f, x, r.lo - less, r.hi - less);
}

int frame_choose(const struct frame *f, const int64_t *complexity)
{
    return measure_choose(f->turns.measure, complexity, 0);
}

void frame_again(struct frame *f, const char *suffix, int again, int a)
{
    double *ratio = frame_named(f, "ratio_again%s", suffix);
    struct measure_report r;
    char name[64];

    measure_ratio(f->turns.measure, again, a, &r);
    snprintf(name, sizeof(name), "s_again%s", suffix);
    frame_times_series(f, name, again);
    frame_ratio(f, ratio, again, a, 0);
    frame_set(f, frame_named(f, "detectable_frac%s", suffix),
              stats_detectable_frac(r.lo, r.hi), "no round was undisturbed");
}

void frame_rounds_close(struct frame *f)
{
    close_turns(&f->turns);
    for (int i = 0; i < f->n_vars; i++)
        mem_free(f->vars[i].v);
    mem_free(f->vars);
}
