/* Roller's scale-up and scale-out as Sandwich 2.2 and 3.2 describe and compare it. Of the
 * micro-kernels with the most reuse in registers ten are scaled up, each by constant
 * steps of one tile, measured on one thread at every step, as long as a step gains.
 * Scale-out copies the slices to all threads, cutting the larger
 * of M and N; all ten are measured so, and the fastest is taken. K is never split, and
 * the scheme is not searched.
 *
 * Roller's authors rank slices by a model instead of measuring every step: that is
 * `roller_topk`. */
#include <math.h>

#include "tune/grow.h"

#define TOP_K 10

/* The scheme whose parts are most even: that wastes least of the threads' time; of two
 * the one that cuts N, where every thread reads its own weights. */
static void scale_out(const struct tune_search *q, struct kern_schedule *s)
{
    struct tune_scheme schemes[TUNE_SCHEMES_MAX], best = {1, q->c->n_threads, 1};
    int n = tune_schemes(q->c->n_threads, false, schemes);
    double best_waste = INFINITY;

    for (int i = 0; i < n; i++) {
        double blocks = (double)kern_a_blocks(q->shape.m, s->mr);
        double panels = (double)q->w->n_panels / s->np, pm = schemes[i].pm,
               pn = schemes[i].pn;
        double waste = ceil(blocks / pm) * pm / blocks * ceil(panels / pn) * pn / panels;

        if (pm <= blocks && waste < best_waste) {
            best_waste = waste;
            best = schemes[i];
        }
    }
    tune_set_scheme(s, best);
}

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    struct tune_shape whole = q->shape, trial;
    struct tune_mk mks[TUNE_MKS_MAX];
    struct kern_schedule grown[TOP_K];
    int n = tune_mks(whole.v, whole.m, mks);
    double seconds;

    (void)arg, (void)i;
    n = n < TOP_K ? n : TOP_K;
    tune_trial_shape(&whole, q->w, &trial);
    TRY(tune_search_shape(q, &trial));
    for (int x = 0; x < n; x++) {
        tune_first_tile(q, mks[x], &grown[x]);
        TRY(tune_fast_start(q, &grown[x], 1, NULL, true, &seconds));
    }
    TRY(tune_search_shape(q, &whole));
    for (int x = 0; x < n; x++) {
        scale_out(q, &grown[x]);
        TRY(tune_search_try(q, &grown[x], q->c->n_threads, &seconds));
    }
    if (isfinite(q->best_t.estimate)) {
        *s = q->best;
        *t = q->best_t;
    }
    return OK;
}

static const struct tune_steps steps = {.one = one};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    return tune_search_run(c, out, &steps, NULL);
}

const struct tune_policy tune_policy_roller = {
    .name = "roller",
    .help = "scale-up by constant steps on one thread, then scale-out to all",
    .run = run,
};
