#include "tune/search.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

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

bool tune_search_over(const struct tune_search *q)
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
    int rc;

    *seconds = INFINITY;
    tune_clamp(s, q->w, q->shape.m);
    known = find(q, s, n_threads);
    if (known) {
        *seconds = known->t.estimate;
        return OK;
    }
    if (stopped(q))
        return err_set(ERR_CANCELED, "the search was stopped");
    if (tune_search_over(q) || !tune_search_legal(q, s, n_threads))
        return OK;
    rc = grow(q);
    if (rc == OK)
        rc = tune_measure(q->c->bench, s, n_threads, &t);
    if (rc != OK)
        return rc;
    q->seen[q->n_seen++] = (struct tune_seen){*s, n_threads, t};
    *seconds = t.estimate;
    if (n_threads == q->c->n_threads && t.estimate < q->best_t.estimate) {
        q->best = *s;
        q->best_t = t;
    }
    return OK;
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

static int one_shape(struct tune_search *q, int i, const struct tune_steps *steps,
                     void *arg, struct kern_schedule *out)
{
    struct kern_schedule s = *out;
    struct measure_report t = {0};
    int rc;

    if (stopped(q))
        return err_set(ERR_CANCELED, "the search was stopped");
    if (tune_search_over(q))
        return OK;
    rc = tune_search_shape(q, &q->c->shapes[i]);
    if (rc == OK)
        rc = steps->one(arg, q, i, &s, &t);
    if (rc == OK && tune_search_legal(q, &s, q->c->n_threads))
        *out = s;
    /* a search that the budget cut short before it measured anything found nothing */
    if (rc == OK && q->c->done && (t.n > 0 || !tune_search_over(q)))
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
        if (steps->known)
            steps->known(arg, c, &out[i]);
    }
    mem_free(q.seen);
    return rc;
}
