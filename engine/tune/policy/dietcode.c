/* DietCode's joint search (MLSys'22, as Sandwich 2.2 and 3.2 describe it), over our
 * micro-kernels. One search for all shapes: slices that know no shape are drawn, ranked
 * by a model that learns while it goes on, and measured on a sample of the shapes. The
 * model is a product: what a slice costs for its arithmetic (learned from its features)
 * times how well it fits a shape, which is arithmetic: rows padded to whole blocks, and
 * threads that wait while others finish the last round. Afterwards a shape is given the
 * slice that the model likes best among the measured ones, and nothing is measured for
 * it.
 *
 * DietCode dispatches by a decision tree that was fitted to this choice; here the choice
 * itself is made, which is to its advantage. `trials` measurements serve all shapes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/ridge.h"
#include "tune/features.h"
#include "tune/search.h"

#define SAMPLE     8   /* shapes that are measured on, spread over all */
#define BATCH      16  /* measurements between two fits, on one shape of the sample */
#define CANDIDATES 256 /* ranked for a batch: half random, half near good ones */
#define STALE      150 /* measurements without a gain end the search */
#define GAIN       0.01
#define CHANCE     0.1 /* of a batch: random, so that the model meets the unexpected */

struct slice {
    struct kern_schedule s;
    double log_cost; /* measured: log(seconds per FLOP), the fit to its shape taken out */
    double predicted; /* log(seconds) of the shape in hand */
};

struct state {
    struct slice *pool; /* every slice measured */
    int n_pool, capacity;
    struct slice drawn[CANDIDATES];
    struct stats_ridge model;
    struct rng rng;
    double caches[3];
    int sample[SAMPLE], n_sample; /* indices of shapes */
};

/* ---- the model ---- */

/* Rounded up to whole parts, over what is there: at least 1. */
static double waste(int64_t items, int64_t parts)
{
    return (double)((items + parts - 1) / parts * parts) / (double)items;
}

/* How much longer the slice takes on the shape than its arithmetic suggests. */
static double log_fit(const struct kern_schedule *s, const struct tune_shape *shape,
                      const struct kern_mat *w)
{
    int64_t blocks = kern_a_blocks(shape->m, s->mr);

    return log(waste(shape->m, s->mr) * waste(blocks, s->pm) *
               waste(w->n_panels, (int64_t)s->np * s->pn));
}

/* Features of the slice alone: on a shape that it fits. */
static void features(const struct state *st, const struct kern_schedule *s,
                     const struct tune_search *q, double x[TUNE_N_FEATURES])
{
    struct tune_shape whole = q->shape;

    whole.m = s->bm * s->pm;
    tune_features(s, &whole, q->w, st->caches, x);
}

static double predict(const struct state *st, const struct slice *c,
                      const struct tune_search *q, bool measured)
{
    double x[TUNE_N_FEATURES], log_cost = c->log_cost;

    if (kern_schedule_check(&c->s, q->shape.v, q->w, q->shape.m, q->c->n_threads) != OK) {
        err_clear();
        return INFINITY;
    }
    if (!measured) {
        features(st, &c->s, q, x);
        log_cost = stats_ridge_predict(&st->model, x);
    }
    return log_cost + log_fit(&c->s, &q->shape, q->w) + log(tune_flop(&q->shape));
}

/* ---- the joint search ---- */

static int by_prediction(const void *a, const void *b)
{
    double x = ((const struct slice *)a)->predicted;
    double y = ((const struct slice *)b)->predicted;

    return (x > y) - (x < y);
}

static void draw(struct state *st, const struct tune_search *q, struct slice *out,
                 bool near)
{
    int n_threads = q->c->n_threads;
    bool split_k = q->c->o->split_k;

    if (near) {
        /* the pool's best come first after choose(); until then any */
        int n = st->n_pool / 4 + 1;

        out->s = st->pool[rng_below(&st->rng, (uint64_t)n)].s;
        tune_mutate(&out->s, &q->shape, q->w, n_threads, split_k, &st->rng);
    } else {
        tune_random(&out->s, &q->shape, q->w, n_threads, split_k, &st->rng);
    }
    out->predicted = predict(st, out, q, false);
}

/* The pool in the order that suits the shape on the bench; the candidates likewise. */
static void rank(struct state *st, const struct tune_search *q)
{
    for (int i = 0; i < st->n_pool; i++)
        st->pool[i].predicted = predict(st, &st->pool[i], q, true);
    qsort(st->pool, (size_t)st->n_pool, sizeof(*st->pool), by_prediction);
    for (int i = 0; i < CANDIDATES; i++)
        draw(st, q, &st->drawn[i], st->n_pool > 0 && i % 2 == 0);
    qsort(st->drawn, CANDIDATES, sizeof(st->drawn[0]), by_prediction);
}

static int trial(struct state *st, struct tune_search *q, struct slice *c)
{
    double x[TUNE_N_FEATURES], seconds;
    int known = q->n_seen, rc;

    if (st->n_pool == st->capacity)
        return OK; /* no trial is left */
    rc = tune_search_try(q, &c->s, q->c->n_threads, &seconds);
    if (rc != OK || q->n_seen == known)
        return rc;
    c->log_cost = log(seconds / tune_flop(&q->shape)) - log_fit(&c->s, &q->shape, q->w);
    features(st, &c->s, q, x);
    stats_ridge_add(&st->model, x, &c->log_cost);
    st->pool[st->n_pool++] = *c;
    return OK;
}

static int batch(struct state *st, struct tune_search *q)
{
    int rc = OK, at = 0;

    rank(st, q);
    for (int i = 0; i < BATCH && rc == OK; i++) {
        struct slice *c = &st->drawn[at];

        if (st->model.n < BATCH || rng_f64(&st->rng) < CHANCE) {
            c = &st->drawn[CANDIDATES - 1]; /* no opinion yet, or none wanted */
            draw(st, q, c, false);
        } else {
            at++;
        }
        if (isfinite(c->predicted))
            rc = trial(st, q, c);
    }
    return rc == OK ? stats_ridge_solve(&st->model,
                                        TUNE_RIDGE_LAMBDA * (double)(st->model.n + 1))
                    : rc;
}

/* Returns the lowest cost for the shape on the bench (its logarithm) by the measured costs of the
 * pool's schedules; *s is that schedule. */
static double best_of_pool(struct state *st, const struct tune_search *q,
                           struct kern_schedule *s)
{
    double best = INFINITY;

    for (int i = 0; i < st->n_pool; i++) {
        double p = predict(st, &st->pool[i], q, true);

        if (p < best) {
            best = p;
            *s = st->pool[i].s;
        }
    }
    return best;
}

static void choose_sample(struct state *st, const struct tune_ctx *c)
{
    int n = c->n_shapes;

    st->n_sample = n < SAMPLE ? n : SAMPLE;
    for (int i = 0; i < st->n_sample; i++)
        st->sample[i] = st->n_sample > 1 ? i * (n - 1) / (st->n_sample - 1) : 0;
}

/* Rounds over the sample until the trials are used up or nothing has gained. */
static int search(void *arg, struct tune_search *q)
{
    struct state *st = arg;
    double best = INFINITY;
    int rc = OK, gained_at = 0, before = -1;

    choose_sample(st, q->c);
    while (rc == OK && st->n_pool > before && st->n_pool < st->capacity &&
           st->n_pool - gained_at < STALE) {
        double total = 0;

        before = st->n_pool;
        for (int i = 0; i < st->n_sample && rc == OK; i++) {
            struct kern_schedule s;

            rc = tune_search_shape(q, &q->c->shapes[st->sample[i]]);
            if (rc == OK)
                rc = batch(st, q);
            total += best_of_pool(st, q, &s);
        }
        if (!(total > best - GAIN * st->n_sample)) {
            best = total;
            gained_at = st->n_pool;
        }
    }
    return rc;
}

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    (void)i, (void)t; /* nothing is measured for the shape */
    (void)best_of_pool(arg, q, s);
    tune_clamp(s, q->w, q->shape.m);
    return OK;
}

static const struct tune_steps steps = {.one = one, .before = search};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    struct state *st;
    int rc;

    st = mem_new(MEM_OTHER, 1, sizeof(*st));
    if (!st)
        return ERR_NOMEM;
    st->capacity = (int)c->o->trials;
    st->pool = mem_new(MEM_OTHER, (size_t)st->capacity, sizeof(*st->pool));
    rc = st->pool ? stats_ridge_init(&st->model, TUNE_N_FEATURES, 1) : ERR_NOMEM;
    if (rc == OK) {
        tune_caches(c->n_threads, st->caches);
        rng_init(&st->rng, (uint64_t)c->o->seed, "dietcode");
        rc = tune_search_run(c, out, &steps, st);
    }
    stats_ridge_fini(&st->model);
    mem_free(st->pool);
    mem_free(st);
    return rc;
}

const struct tune_policy tune_policy_dietcode = {
    .name = "dietcode",
    .help = "one search for all shapes; slice cost times fit to the shape, then dispatch",
    .run = run,
};
