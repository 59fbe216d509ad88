/* Sandwich 6: micro-kernel, slice and scheme searched together. Fast start grows a slice
 * for each micro-kernel on one thread; finetune grows it on all threads under every
 * polymerization scheme. Only the first sigma shapes try every micro-kernel; later ones
 * start from what the last sigma chose. When `freeze` shapes in a row agree within theta,
 * slice and scheme are frozen, and larger shapes cost nothing.
 *
 * `sandwich_paper` is the paper's own procedure. Here, to measure less: slow micro-kernels are
 * not grown, nor slow schemes finetuned; a later shape grows the schedules that were chosen
 * before, not first tiles; slice and scheme are frozen together. To find more: loop orders
 * are tried, and the limit of parallelizability is on the product of tiles. Among equals
 * the schedule of the shape before is kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tune/grow.h"

/* First tiles are measured in falling order of the sums they hold in registers, until so
 * many in a row were no faster than one before: those that follow reuse less and less. A
 * tile that is so much slower than the best one is not grown; of the others the best few
 * are. */
#define SCREEN_PATIENCE 8
#define SCREEN_FRAC     1.5
#define SCREEN_KEEP     4
/* The same for grown slices and for starts under a scheme. */
#define GROWN_KEEP 3
#define START_FRAC 1.1
#define START_KEEP 4

struct state {
    struct kern_schedule *chosen; /* [n_shapes], by shape */
    int n;
    int n_alike; /* shapes in a row near the mean of those before */
    bool frozen;
};

struct candidate {
    struct kern_schedule s;
    double seconds;
};

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct candidate *)a)->seconds;
    double y = ((const struct candidate *)b)->seconds;

    return (x > y) - (x < y);
}

/* Sort, and return how many are left within `frac` of the best, at most `keep`. */
static int keep_best(struct candidate *x, int n, double frac, int keep)
{
    int left = 0;

    qsort(x, (size_t)n, sizeof(*x), by_seconds);
    while (left < n && left < keep && isfinite(x[left].seconds) &&
           x[left].seconds <= frac * x[0].seconds)
        left++;
    return left;
}

/* ---- the first sigma shapes: every micro-kernel ---- */

/* x[*n_kept]: the first tiles worth growing, the best first. */
static int screen(struct tune_search *q, struct candidate *x, int *n_kept)
{
    struct tune_mk mks[TUNE_MKS_MAX];
    int n = tune_mks(q->shape.v, q->shape.m, mks), n_x = 0, rc = OK;
    double best = INFINITY;

    for (int stale = 0; n_x < n && stale < SCREEN_PATIENCE && rc == OK; n_x++) {
        tune_first_tile(q, mks[n_x], &x[n_x].s);
        rc = tune_search_try(q, &x[n_x].s, 1, &x[n_x].seconds);
        stale = x[n_x].seconds < best ? 0 : stale + 1;
        best = fmin(best, x[n_x].seconds);
    }
    *n_kept = rc == OK ? keep_best(x, n_x, SCREEN_FRAC, SCREEN_KEEP) : 0;
    return rc;
}

/* Fast start of the promising micro-kernels. Returns how many grew, the best first. */
static int grow_all(struct tune_search *q, struct candidate *x, int *n_grown)
{
    const struct tune_opts *o = q->c->o;
    const struct tune_bound bound = {.dim = {q->shape.m, q->w->n_panels, q->w->k_pad},
                                     .n_threads = q->c->n_threads,
                                     .split_k = o->split_k};
    struct tune_shape whole = q->shape, trial;
    int n = 0, rc = OK;

    tune_trial_shape(&whole, q->w, &trial);
    if (trial.n != whole.n)
        rc = tune_search_shape(q, &trial);
    if (rc == OK)
        rc = screen(q, x, &n);
    for (int i = 0; i < n && rc == OK; i++)
        rc = tune_fast_start(q, &x[i].s, 1, &bound, false, &x[i].seconds);
    *n_grown = rc == OK ? keep_best(x, n, SCREEN_FRAC, GROWN_KEEP) : 0;
    if (rc == OK && trial.n != whole.n)
        rc = tune_search_shape(q, &whole);
    return rc;
}

/* Every scheme under each slice, on all threads; the near best go on by single tiles. */
static int finetune_all(struct tune_search *q, const struct candidate *grown, int n)
{
    struct tune_scheme schemes[TUNE_SCHEMES_MAX];
    int n_schemes = tune_schemes(q->c->n_threads, q->c->o->split_k, schemes);
    struct candidate *x;
    int n_x = 0, rc = OK;

    x = mem_new(MEM_OTHER, (size_t)(n * n_schemes), sizeof(*x));
    if (!x)
        return ERR_NOMEM;
    for (int i = 0; i < n * n_schemes && rc == OK; i++, n_x++) {
        x[n_x].s = grown[i / n_schemes].s;
        tune_set_scheme(&x[n_x].s, schemes[i % n_schemes]);
        rc = tune_search_try(q, &x[n_x].s, q->c->n_threads, &x[n_x].seconds);
    }
    n_x = keep_best(x, n_x, START_FRAC, START_KEEP);
    for (int i = 0; i < n_x && rc == OK; i++)
        rc = tune_finetune(q, &x[i].s, q->c->n_threads, &x[i].seconds);
    mem_free(x);
    return rc;
}

static int other_orders(struct tune_search *q)
{
    struct kern_schedule s = q->best;
    double seconds;
    int rc = OK;

    for (int o = 0; o < KERN_N_ORDERS && rc == OK && isfinite(q->best_t.estimate); o++) {
        s.order = (enum kern_order)o;
        rc = tune_search_try(q, &s, q->c->n_threads, &seconds);
    }
    return rc;
}

static int try_default(struct tune_search *q)
{
    struct kern_schedule s;
    double seconds;

    tune_search_default(q, &s);
    return tune_search_try(q, &s, q->c->n_threads, &seconds);
}

static int explore(struct tune_search *q)
{
    struct candidate *x;
    int n = 0, rc;

    x = mem_new(MEM_OTHER, TUNE_MKS_MAX, sizeof(*x));
    if (!x)
        return ERR_NOMEM;
    rc = grow_all(q, x, &n);
    /* The cost model's slice is a start as good as a grown one, and the only one that may
     * begin with another loop order. */
    if (rc == OK && q->c->o->start_default)
        kern_schedule_default(&x[n++].s, q->shape.v, q->w, q->shape.m, q->c->n_threads);
    if (rc == OK && n > 0)
        rc = finetune_all(q, x, n);
    if (rc == OK)
        rc = other_orders(q);
    mem_free(x);
    return rc;
}

/* ---- later shapes: what the window chose ---- */

/* A chosen schedule for another m: the tallest of the same blocks, its slice clamped. */
static struct kern_schedule adapt(const struct tune_search *q, struct kern_schedule s)
{
    int most = kern_gemm_rows(q->shape.v, s.np);
    int64_t blocks = kern_a_blocks(q->shape.m, s.mr);

    while (s.mr < most && kern_a_blocks(q->shape.m, s.mr + 1) == blocks)
        s.mr++;
    tune_clamp(&s, q->w, q->shape.m);
    return s;
}

/* The window's micro-kernels, each as it was chosen last; then every scheme, growth by
 * doubling steps, and single tiles, from the best of them. */
static int refine(struct tune_search *q, const struct state *st)
{
    int64_t sigma = q->c->o->sigma;
    int lo = st->n > sigma ? st->n - (int)sigma : 0;
    int n_threads = q->c->n_threads, n_schemes;
    struct tune_scheme schemes[TUNE_SCHEMES_MAX];
    struct kern_schedule s, start;
    double seconds;

    if (q->c->o->start_default)
        TRY(try_default(q));
    for (int i = st->n - 1; i >= lo; i--) {
        bool newest = true;

        for (int j = i + 1; j < st->n; j++)
            newest &= st->chosen[j].mr != st->chosen[i].mr ||
                      st->chosen[j].np != st->chosen[i].np;
        s = adapt(q, st->chosen[i]);
        if (newest)
            TRY(tune_search_try(q, &s, n_threads, &seconds));
    }
    if (isinf(q->best_t.estimate))
        return OK;
    n_schemes = tune_schemes(n_threads, q->c->o->split_k, schemes);
    start = q->best;
    for (int i = 0; i < n_schemes; i++) {
        s = start;
        tune_set_scheme(&s, schemes[i]);
        TRY(tune_search_try(q, &s, n_threads, &seconds));
    }
    s = q->best;
    TRY(tune_fast_start(q, &s, n_threads, NULL, false, &seconds));
    return tune_finetune(q, &s, n_threads, &seconds);
}

/* ---- reuse ---- */

static bool near_mean(const struct state *st, struct kern_schedule s, int64_t sigma,
                      double theta)
{
    const struct kern_schedule *before = &st->chosen[st->n - 1];
    int lo = st->n > sigma ? st->n - (int)sigma : 0;

    if (st->n == 0 || s.np != before->np || s.pm != before->pm || s.pn != before->pn ||
        s.pk != before->pk)
        return false;
    for (int d = 0; d < TUNE_N_DIMS; d++) {
        double mean = 0;

        for (int i = lo; i < st->n; i++)
            mean += (double)*tune_extent(&st->chosen[i], (enum tune_dim)d) / (st->n - lo);
        if (fabs((double)*tune_extent(&s, (enum tune_dim)d) - mean) > theta * mean)
            return false;
    }
    return true;
}

static void remember(struct state *st, const struct tune_opts *o,
                     const struct kern_schedule *s)
{
    st->n_alike = near_mean(st, *s, o->sigma, o->theta) ? st->n_alike + 1 : 0;
    st->chosen[st->n++] = *s;
    st->frozen |= st->n_alike >= (o->freeze > 0 ? o->freeze : o->sigma);
}

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    const struct state *st = arg;
    int rc;

    (void)i;
    if (st->n > 0)
        q->keep = adapt(q, st->chosen[st->n - 1]);
    if (st->frozen) {
        *s = q->keep;
        return OK;
    }
    rc = st->n < q->c->o->sigma ? explore(q) : refine(q, st);
    if (rc == OK && isfinite(q->best_t.estimate)) {
        *s = q->best;
        *t = q->best_t;
    }
    return rc;
}

static void took(void *arg, const struct tune_ctx *c, const struct kern_schedule *s)
{
    remember(arg, c->o, s);
}

static const struct tune_steps steps = {.one = one, .took = took};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    struct state st = {0};
    int rc;

    st.chosen = mem_new(MEM_OTHER, (size_t)c->n_shapes + 1, sizeof(*st.chosen));
    if (!st.chosen)
        return ERR_NOMEM;
    rc = tune_search_run(c, out, &steps, &st);
    mem_free(st.chosen);
    return rc;
}

const struct tune_policy tune_policy_sandwich = {
    .name = "sandwich",
    .help = "fast start, finetune over all schemes, sliding window, reuse",
    .run = run,
};
