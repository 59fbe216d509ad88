#include "tune/grow.h"

#include <math.h>

#define FINETUNE_STEPS 64 /* a slice of more tiles than that along a dimension is "all" */

#define TRIAL_FLOP   1.5e9
#define TRIAL_PANELS 16

void tune_trial_shape(const struct tune_shape *s, const struct kern_mat *w,
                      struct tune_shape *out)
{
    double panel_flop = 2.0 * KERN_PANEL * (double)s->m * (double)s->k;
    int64_t panels = (int64_t)(TRIAL_FLOP / panel_flop);

    *out = *s;
    panels = panels < TRIAL_PANELS ? TRIAL_PANELS : panels;
    if (panels < w->n_panels)
        out->n = panels * KERN_PANEL;
}

void tune_first_tile(const struct tune_search *q, struct tune_mk mk,
                     struct kern_schedule *s)
{
    *s = (struct kern_schedule){.mr = mk.mr, .np = mk.np, .pm = 1, .pn = 1, .pk = 1};
    for (int d = 0; d < TUNE_N_DIMS; d++)
        *tune_extent(s, (enum tune_dim)d) = tune_tile(s, q->w, (enum tune_dim)d);
}

static bool gains(double now, double before)
{
    return now < before * (1 - TUNE_GAIN);
}

static bool within(const struct tune_bound *bound, struct kern_schedule *s)
{
    int64_t b[TUNE_N_DIMS];

    if (!bound)
        return true;
    for (int d = 0; d < TUNE_N_DIMS; d++)
        b[d] = *tune_extent(s, (enum tune_dim)d);
    return tune_slice_parallel(bound->dim, b, bound->n_threads, bound->literal,
                               bound->split_k);
}

int tune_fast_start(struct tune_search *q, struct kern_schedule *s, int n_threads,
                    const struct tune_bound *bound, bool constant_step, double *seconds)
{
    static const enum tune_dim turn[TUNE_N_DIMS] = {TUNE_K, TUNE_N, TUNE_M};
    int64_t step[TUNE_N_DIMS] = {1, 1, 1}; /* tiles; 0: ended */
    int n_open = TUNE_N_DIMS, rc;

    rc = tune_search_try(q, s, n_threads, seconds);
    if (isinf(*seconds))
        return rc;
    for (int i = 0; n_open > 0 && rc == OK; i = (i + 1) % TUNE_N_DIMS) {
        struct kern_schedule next = *s;
        enum tune_dim d = turn[i];
        double t = INFINITY;

        if (step[d] == 0)
            continue;
        *tune_extent(&next, d) += step[d] * tune_tile(s, q->w, d);
        tune_clamp(&next, q->w, q->shape.m);
        if (!tune_same(&next, s) && within(bound, &next))
            rc = tune_search_try(q, &next, n_threads, &t);
        if (rc == OK && gains(t, *seconds)) {
            *s = next;
            *seconds = t;
            step[d] *= constant_step ? 1 : 2;
        } else {
            step[d] = 0;
            n_open--;
        }
    }
    return rc;
}

int tune_finetune(struct tune_search *q, struct kern_schedule *s, int n_threads,
                  double *seconds)
{
    int rc = tune_search_try(q, s, n_threads, seconds);

    for (int i = 0; i < FINETUNE_STEPS && rc == OK && !isinf(*seconds); i++) {
        struct kern_schedule best = *s;
        double best_s = *seconds;

        for (int d = 0; d < TUNE_N_DIMS && rc == OK; d++) {
            struct kern_schedule next = *s;
            double t = INFINITY;

            *tune_extent(&next, (enum tune_dim)d) += tune_tile(s, q->w, (enum tune_dim)d);
            rc = tune_search_try(q, &next, n_threads, &t);
            if (t < best_s) {
                best = next;
                best_s = t;
            }
        }
        if (!gains(best_s, *seconds))
            break;
        *s = best;
        *seconds = best_s;
    }
    return rc;
}
