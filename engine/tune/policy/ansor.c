/* A search in the manner of Ansor (OSDI'20): separately for every shape, random schedules out
 * of the whole space, then generations of mutation and recombination ranked by a cost model
 * that learns from what is measured, in batches, up to `trials` measurements. The model
 * is ridge regression where Ansor has boosted trees. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/ridge.h"
#include "tune/features.h"
#include "tune/search.h"

#define BATCH       64  /* measurements between two fits, as in Ansor */
#define POPULATION  256 /* candidates of a generation */
#define GENERATIONS 4
#define STALE       150 /* measurements without a gain end the search */
#define CHANCE      0.1 /* of a batch: random, so that the model meets the unexpected */
#define GAIN        0.01

struct candidate {
    struct kern_schedule s;
    double score; /* predicted log(seconds) */
};

struct state {
    struct candidate population[POPULATION], next[POPULATION];
    struct stats_ridge model;
    struct rng rng;
    double caches[3];
};

static int by_score(const void *a, const void *b)
{
    double x = ((const struct candidate *)a)->score;
    double y = ((const struct candidate *)b)->score;

    return (x > y) - (x < y);
}

static void score(struct state *st, const struct tune_search *q, struct candidate *c)
{
    double x[TUNE_N_FEATURES];

    tune_features(&c->s, &q->shape, q->w, st->caches, x);
    c->score = stats_ridge_predict(&st->model, x);
    if (kern_schedule_check(&c->s, q->shape.v, q->w, q->shape.m, q->c->n_threads) != OK) {
        err_clear();
        c->score = INFINITY;
    }
}

static void draw(struct state *st, const struct tune_search *q, struct kern_schedule *s)
{
    tune_random(s, &q->shape, q->w, q->c->n_threads, q->c->o->split_k, &st->rng);
}

/* A child of two of the better half: each choice from either parent. */
static void cross(struct state *st, const struct tune_search *q, struct kern_schedule *s)
{
    const struct kern_schedule *a =
        &st->population[rng_below(&st->rng, POPULATION / 2)].s;
    const struct kern_schedule *b =
        &st->population[rng_below(&st->rng, POPULATION / 2)].s;
    uint64_t from = rng_u64(&st->rng);

    *s = *a;
    if (from & 1)
        s->mr = b->mr, s->np = b->np;
    if (from & 2)
        s->pm = b->pm, s->pn = b->pn, s->pk = b->pk;
    s->bm = from & 4 ? b->bm : s->bm;
    s->bn = from & 8 ? b->bn : s->bn;
    s->bk = from & 16 ? b->bk : s->bk;
    tune_clamp(s, q->w, q->shape.m);
}

static void evolve(struct state *st, const struct tune_search *q)
{
    int n = 0;

    /* begin with the best that was measured, then chance */
    for (int i = 0; i < q->n_seen && n < POPULATION / 4; i++)
        if (q->seen[i].t.estimate <= 1.2 * q->best_t.estimate)
            st->population[n++].s = q->seen[i].s;
    for (; n < POPULATION; n++)
        draw(st, q, &st->population[n].s);
    for (int i = 0; i < POPULATION; i++)
        score(st, q, &st->population[i]);
    for (int g = 0; g < GENERATIONS; g++) {
        qsort(st->population, POPULATION, sizeof(st->population[0]), by_score);
        memcpy(st->next, st->population, sizeof(st->next));
        for (int i = POPULATION / 2; i < POPULATION; i++) {
            if (rng_f64(&st->rng) < 0.5) {
                cross(st, q, &st->next[i].s);
            } else {
                st->next[i].s = st->population[rng_below(&st->rng, POPULATION / 2)].s;
                tune_mutate(&st->next[i].s, &q->shape, q->w, q->c->n_threads,
                            q->c->o->split_k, &st->rng);
            }
            score(st, q, &st->next[i]);
        }
        memcpy(st->population, st->next, sizeof(st->next));
    }
    qsort(st->population, POPULATION, sizeof(st->population[0]), by_score);
}

/* Measure, and teach the model what was new. */
static int trial(struct state *st, struct tune_search *q, struct kern_schedule *s)
{
    double x[TUNE_N_FEATURES], seconds, log_seconds;
    int known = q->n_seen, rc;

    rc = tune_search_try(q, s, q->c->n_threads, &seconds);
    if (rc != OK || q->n_seen == known)
        return rc;
    tune_features(s, &q->shape, q->w, st->caches, x);
    log_seconds = log(seconds);
    stats_ridge_add(&st->model, x, &log_seconds);
    return OK;
}

static int batch(struct state *st, struct tune_search *q, int n, bool first)
{
    struct kern_schedule s;
    int at = 0, end = q->n_seen + n, rc = OK;

    if (!first)
        evolve(st, q);
    for (int tries = 0; q->n_seen < end && tries < 8 * n && rc == OK; tries++) {
        if (first || at == POPULATION || rng_f64(&st->rng) < CHANCE)
            draw(st, q, &s);
        else
            s = st->population[at++].s;
        rc = trial(st, q, &s);
    }
    return rc == OK ? stats_ridge_solve(&st->model,
                                        TUNE_RIDGE_LAMBDA * (double)(st->model.n + 1))
                    : rc;
}

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    int trials = (int)q->c->o->trials, n = trials < 4 * BATCH ? (trials + 3) / 4 : BATCH;
    struct state *st = arg;
    double best = INFINITY;
    struct kern_schedule start;
    int gained_at = 0, before = -1, rc = OK;
    bool first = true;

    (void)i;
    stats_ridge_fini(&st->model); /* of the shape before */
    TRY(stats_ridge_init(&st->model, TUNE_N_FEATURES, 1));
    rng_init(&st->rng, (uint64_t)q->c->o->seed + (uint64_t)q->shape.m, "ansor");
    tune_search_default(q, &start);
    if (q->c->o->start_default)
        rc = trial(st, q, &start);
    for (; rc == OK && q->n_seen < trials && q->n_seen > before &&
           q->n_seen - gained_at < STALE;
         first = false) {
        before = q->n_seen;
        rc = batch(st, q, n < trials - before ? n : trials - before, first);
        if (q->best_t.estimate < best * (1 - GAIN) || first) {
            best = q->best_t.estimate;
            gained_at = q->n_seen;
        }
    }
    if (isfinite(q->best_t.estimate)) {
        *s = q->best;
        *t = q->best_t;
    }
    return rc;
}

static const struct tune_steps steps = {.one = one};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    struct state *st;
    int rc;

    st = mem_new(MEM_OTHER, 1, sizeof(*st));
    if (!st)
        return ERR_NOMEM;
    tune_caches(c->n_threads, st->caches);
    rc = tune_search_run(c, out, &steps, st);
    stats_ridge_fini(&st->model);
    mem_free(st);
    return rc;
}

const struct tune_policy tune_policy_ansor = {
    .name = "ansor",
    .help = "evolution ranked by a learned cost model, separately for every shape",
    .run = run,
};
