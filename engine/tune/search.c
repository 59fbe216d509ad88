#include "tune/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Schedules that are within this of the fastest are measured again, so often; short runs
 * take more rounds, up to so long. */
#define RETEST_FRAC   1.1
#define RETEST_ROUNDS 9
#define RETEST_S      0.05
#define ROUNDS_MAX    49

int tune_search_shape(struct tune_search *q, const struct tune_shape *s)
{
    int rc = tune_bench_shape(q->c->bench, s);

    if (rc != OK)
        return rc;
    q->shape = *s;
    q->w = tune_bench_mat(q->c->bench);
    q->n_seen = 0;
    memset(&q->best_t, 0, sizeof(q->best_t));
    q->best_t.estimate = INFINITY;
    return OK;
}

static bool is_over(const struct tune_search *q)
{
    struct tune_cost now;

    tune_cost_of(q->c->bench, &now);
    return q->c->o->budget_s > 0 && now.seconds - q->spent0_s >= q->c->o->budget_s;
}

static bool stopped(const struct tune_search *q)
{
    return q->c->stop && *q->c->stop;
}

static const struct tune_seen *find(const struct tune_search *q,
                                    const struct kern_schedule *s, int n_threads)
{
    for (int i = 0; i < q->n_seen; i++)
        if (q->seen[i].n_threads == n_threads && tune_same(&q->seen[i].s, s))
            return &q->seen[i];
    return NULL;
}

static int grow(struct tune_search *q)
{
    int cap = q->cap ? 2 * q->cap : 64;
    struct tune_seen *seen;

    if (q->n_seen < q->cap)
        return OK;
    seen = mem_resize(MEM_OTHER, q->seen, (size_t)cap, sizeof(*seen));
    if (!seen)
        return ERR_NOMEM;
    q->seen = seen;
    q->cap = cap;
    return OK;
}

bool tune_search_legal(const struct tune_search *q, const struct kern_schedule *s,
                       int n_threads)
{
    bool ok = kern_schedule_check(s, q->shape.v, q->w, q->shape.m, n_threads) == OK;

    if (!ok)
        err_clear(); /* a corner of the space, not a fault */
    return ok;
}

int tune_search_try(struct tune_search *q, struct kern_schedule *s, int n_threads,
                    double *seconds)
{
    const struct tune_seen *known;
    struct measure_report t;

    *seconds = INFINITY;
    tune_clamp(s, q->w, q->shape.m);
    known = find(q, s, n_threads);
    if (known) {
        *seconds = known->t.estimate;
        return OK;
    }
    if (stopped(q))
        return err_set(ERR_CANCELED, "the search was stopped");
    if (is_over(q) || !tune_search_legal(q, s, n_threads))
        return OK;
    TRY(grow(q));
    TRY(tune_measure(q->c->bench, s, n_threads, &t));
    q->seen[q->n_seen++] = (struct tune_seen){*s, n_threads, t};
    *seconds = t.estimate;
    if (n_threads == q->c->n_threads && t.estimate < q->best_t.estimate) {
        q->best = *s;
        q->best_t = t;
    }
    if (q->c->tried)
        q->c->tried(q->c->arg, &q->shape, s, n_threads, &t);
    return OK;
}

/* Append s unless it is there already or not legal. */
static void add(const struct tune_search *q, struct kern_schedule *list, int *n,
                const struct kern_schedule *s)
{
    for (int i = 0; i < *n; i++)
        if (tune_same(&list[i], s))
            return;
    if (tune_search_legal(q, s, q->c->n_threads))
        list[(*n)++] = *s;
}

int tune_search_look(struct tune_search *q, struct kern_schedule *s, int *n, int rounds,
                     double *seconds)
{
    struct measure_report *t;
    int n_given = *n, rc;

    *n = 0;
    if (stopped(q))
        return err_set(ERR_CANCELED, "the search was stopped");
    if (is_over(q))
        return OK;
    for (int i = 0; i < n_given; i++) {
        struct kern_schedule x = s[i]; /* s[*n] may be this one */

        tune_clamp(&x, q->w, q->shape.m);
        add(q, s, n, &x);
    }
    if (*n == 0)
        return OK;
    t = mem_new(MEM_OTHER, (size_t)*n, sizeof(*t));
    if (!t)
        return ERR_NOMEM;
    rc = tune_compare(q->c->bench, s, *n, q->c->n_threads, rounds, t);
    for (int i = 0; i < *n && rc == OK; i++)
        seconds[i] = t[i].estimate;
    mem_free(t);
    return rc;
}

static int by_estimate(const void *a, const void *b)
{
    double x = ((const struct tune_seen *)a)->t.estimate;
    double y = ((const struct tune_seen *)b)->t.estimate;

    return (x > y) - (x < y);
}

void tune_search_sort(struct tune_search *q)
{
    qsort(q->seen, (size_t)q->n_seen, sizeof(*q->seen), by_estimate);
}

void tune_search_default(const struct tune_search *q, struct kern_schedule *s)
{
    kern_schedule_default(s, q->shape.v, q->w, q->shape.m, q->c->n_threads);
    tune_clamp(s, q->w, q->shape.m);
}

/* The default of every shape, so that out[] is legal wherever the search ends. */
static void all_default(const struct tune_ctx *c, struct kern_schedule *out)
{
    for (int i = 0; i < c->n_shapes; i++) {
        const struct tune_shape *s = &c->shapes[i];
        struct kern_mat w;

        kern_mat_layout(&w, (enum kern_type)(s->v->op - KERN_GEMM_F32), s->n, s->k,
                        s->k_unit);
        kern_schedule_default(&out[i], s->v, &w, s->m, c->n_threads);
        tune_clamp(&out[i], &w, s->m);
    }
}

/* ---- what was found is measured again ---- */

/* The schedules that are measured again for the choice *s, the preferred first. The same number
 * for all policies, and the default where searches begin with it. When the budget is over,
 * no others than those: a little more time than was given, but never a choice by chance. */
static int to_retest(struct tune_search *q, const struct kern_schedule *s,
                     struct kern_schedule *list)
{
    int n = 0, most = is_over(q) ? 0 : (int)q->c->o->retest;
    struct kern_schedule usual;

    tune_search_default(q, &usual);
    if (q->keep.mr > 0)
        add(q, list, &n, &q->keep);
    if (q->c->o->start_default) {
        add(q, list, &n, &usual);
        most++;
    }
    add(q, list, &n, s);
    tune_search_sort(q);
    for (int i = 0; i < q->n_seen && n < most; i++)
        if (q->seen[i].n_threads == q->c->n_threads &&
            q->seen[i].t.estimate <= RETEST_FRAC * q->best_t.estimate)
            add(q, list, &n, &q->seen[i].s);
    return n;
}

/* The first of them within a gain of the fastest is taken: so a schedule settles, and is
 * left only for something better. */
static int retest(struct tune_search *q, struct kern_schedule *s,
                  struct measure_report *t)
{
    struct kern_schedule list[TUNE_RETEST_MAX + 3];
    struct measure_report time[TUNE_RETEST_MAX + 3];
    double seconds[TUNE_RETEST_MAX + 3];
    int64_t order[TUNE_RETEST_MAX + 3];
    int n = to_retest(q, s, list), rounds, at;

    if (n < 2)
        return OK;
    rounds = (int)fmin(RETEST_S / (n * q->best_t.estimate), ROUNDS_MAX);
    rounds = rounds > RETEST_ROUNDS ? rounds : RETEST_ROUNDS;
    TRY(tune_compare(q->c->bench, list, n, q->c->n_threads, rounds, time));
    for (int i = 0; i < n; i++) {
        seconds[i] = time[i].estimate;
        order[i] = i;
    }
    at = measure_choose_estimate(seconds, n, order, TUNE_GAIN);
    if (at >= 0) {
        *s = list[at];
        *t = time[at];
    }
    return OK;
}

/* ---- all shapes ---- */

static int one_shape(struct tune_search *q, int i, const struct tune_steps *steps,
                     void *arg, struct kern_schedule *out)
{
    struct kern_schedule s = *out;
    struct measure_report t = {0};
    bool found;
    int rc;

    if (stopped(q))
        return err_set(ERR_CANCELED, "the search was stopped");
    if (is_over(q))
        return OK;
    q->keep.mr = 0;
    rc = tune_search_shape(q, &q->c->shapes[i]);
    if (rc == OK)
        rc = steps->one(arg, q, i, &s, &t);
    if (rc == OK && t.n > 0 && q->c->o->retest > 0)
        rc = retest(q, &s, &t);
    if (rc == OK && tune_search_legal(q, &s, q->c->n_threads))
        *out = s;
    /* a search that the budget cut short before it measured anything found nothing */
    found = rc == OK && (t.n > 0 || !is_over(q));
    if (found && steps->took)
        steps->took(arg, q->c, out);
    if (found && q->c->done)
        rc = q->c->done(q->c->arg, i, out, t.n > 0 ? &t : NULL);
    return rc;
}

static bool is_known(const struct tune_ctx *c, int i)
{
    return c->known && c->known[i].mr > 0;
}

static bool all_known(const struct tune_ctx *c)
{
    int n = 0;

    for (int i = 0; i < c->n_shapes; i++)
        n += is_known(c, i);
    return n == c->n_shapes;
}

int tune_search_run(struct tune_ctx *c, struct kern_schedule *out,
                    const struct tune_steps *steps, void *arg)
{
    struct tune_search q = {.c = c};
    struct tune_cost cost;
    int rc = OK;

    tune_cost_of(c->bench, &cost);
    q.spent0_s = cost.seconds;
    all_default(c, out);
    if (steps->before && !all_known(c))
        rc = steps->before(arg, &q);
    for (int i = 0; i < c->n_shapes && rc == OK; i++) {
        if (!is_known(c, i)) {
            rc = one_shape(&q, i, steps, arg, &out[i]);
            continue;
        }
        out[i] = c->known[i];
        if (steps->took)
            steps->took(arg, c, &out[i]);
    }
    mem_free(q.seen);
    return rc;
}
