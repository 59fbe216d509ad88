#include "experiments/study/support/tuning.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "experiments/study/support/variant.h"

#define STUDY_CANDIDATES_MAX 16

/* --- shapes */

/* Insert m into ascending v[0..n); false when it is there. */
static bool insert(int64_t *v, int n, int64_t m)
{
    int at = n;

    while (at > 0 && v[at - 1] >= m)
        at--;
    if (at < n && v[at] == m)
        return false;
    memmove(&v[at + 1], &v[at], (size_t)(n - at) * sizeof(*v));
    v[at] = m;
    return true;
}

int study_rows_draw(int64_t *v, int64_t n, int64_t m_max, int64_t seed, const char *name)
{
    struct rng r;

    if (n > STUDY_SHAPES_MAX || n > m_max)
        return err_set(ERR_LIMIT,
                       "n_shapes: %lld different numbers of rows up to %lld, "
                       "at most %d",
                       (long long)n, (long long)m_max, STUDY_SHAPES_MAX);
    rng_init(&r, (uint64_t)seed, name);
    for (int have = 0; have < n;) {
        double m = floor(exp(rng_f64(&r) * log((double)m_max + 1)));

        have += insert(v, have, (int64_t)fmin(m, (double)m_max));
    }
    return OK;
}

int study_shapes_make(struct study_shapes *out, const char *matrix, int mode,
                      const char *ms, int64_t n, int64_t m_max, int64_t seed)
{
    struct tune_shape shape;
    int64_t m[STUDY_SHAPES_MAX + 1];

    *out = (struct study_shapes){.mode = mode, .n = (int)n};
    TRY(study_matrix_parse(matrix, 1, &shape));
    if (ms)
        TRY(study_numbers_parse(ms, "study.ms", m, STUDY_SHAPES_MAX, &out->n));
    else
        TRY(study_rows_draw(m, n, m_max, seed, matrix));
    shape.m = m[out->n - 1];
    TRY(study_variant_choose(&shape, mode)); /* one for all: of the most rows */
    for (int i = 0; i < out->n; i++) {
        out->v[i] = shape;
        out->v[i].m = m[i];
    }
    return OK;
}

/* --- policies */

int study_tune_on(struct tune_bench *b, const char *policy, const struct tune_opts *o,
                  int n_threads, const struct tune_shape *shapes, int n,
                  struct kern_schedule *out)
{
    struct tune_ctx c = {
        .bench = b, .n_threads = n_threads, .o = o, .shapes = shapes, .n_shapes = n};
    const struct tune_policy *p;

    TRY(tune_policy_find(policy, &p));
    return p->run(&c, out);
}

int study_tune(const char *policy, const struct tune_opts *o, struct study_threads *t,
               const struct study_shapes *shapes, struct study_tuned *out)
{
    struct tune_bench_opts opts = {.cache_bytes = t->cache_bytes, .seed = o->seed};
    struct tune_bench *b;
    uint64_t start_ns;
    int rc;

    memset(out, 0, sizeof(*out));
    TRY(tune_bench_open(&b, t->team, &opts));
    /* The largest first: no policy is charged for making weights and activations. */
    rc = tune_bench_shape(b, &shapes->v[shapes->n - 1]);
    start_ns = clock_ns();
    if (rc == OK)
        rc = study_tune_on(b, policy, o, t->n, shapes->v, shapes->n, out->schedule);
    out->wall_s = (double)(clock_ns() - start_ns) / 1e9;
    tune_cost_of(b, &out->cost);
    tune_bench_close(&b);
    return rc;
}

static int remeasure_one(struct tune_bench *b, const struct study_shapes *shapes, int i,
                         const struct study_tuned *const *candidates, int n,
                         int n_threads, int rounds, double *seconds)
{
    struct kern_schedule s[STUDY_CANDIDATES_MAX];
    struct measure_report time[STUDY_CANDIDATES_MAX];

    for (int k = 0; k < n; k++)
        s[k] = candidates[k]->schedule[i];
    TRY(tune_bench_shape(b, &shapes->v[i]));
    TRY(tune_compare(b, s, n, n_threads, rounds, time));
    for (int k = 0; k < n; k++)
        seconds[i * n + k] = time[k].estimate;
    return OK;
}

int study_remeasure(struct study_threads *t, const struct study_shapes *shapes,
                    const struct study_tuned *const *candidates, int n, int rounds,
                    int64_t seed, double *seconds)
{
    struct tune_bench_opts o = {.cache_bytes = t->cache_bytes, .seed = seed};
    struct tune_bench *b;
    int rc = OK;

    if (n > STUDY_CANDIDATES_MAX)
        return err_set(ERR_LIMIT, "%d candidates, at most %d", n, STUDY_CANDIDATES_MAX);
    TRY(tune_bench_open(&b, t->team, &o));
    for (int i = 0; i < shapes->n && rc == OK; i++)
        rc = remeasure_one(b, shapes, i, candidates, n, t->n, rounds, seconds);
    tune_bench_close(&b);
    return rc;
}
