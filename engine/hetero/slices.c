#include "hetero/slices.h"

/* A layer with one number left open: units of CG, or tokens. */
struct open_layer {
    const struct hetero_layer *l;
    int gg_units, cg_units;
    bool tokens;
};

static struct hetero_times times_at(const struct open_layer *o, int64_t x)
{
    const struct hetero_layer *l = o->l;
    double cg = o->tokens ? o->cg_units : (double)x;
    const struct hetero_slices s = {.cg = cg / l->n_units,
                                    .gg = (double)o->gg_units / l->n_units,
                                    .n_accel_tok = o->tokens ? x : 0};

    return hetero_times_of(&l->machine, &l->gemm, &s, l->as_printed);
}

static double finish_at(const struct open_layer *o, int64_t x)
{
    struct hetero_times t = times_at(o, x);

    return hetero_finish_s(&t, o->l->n_gemms);
}

/* The least x in (0, most) at which the accelerator finishes no earlier than the CPU; else
 * most. */
static int64_t meeting(const struct open_layer *o, int64_t most)
{
    int64_t lo = 0, hi = most;

    while (hi - lo > 1) {
        int64_t x = lo + (hi - lo) / 2;
        struct hetero_times t = times_at(o, x);

        if (hetero_accel_finish_s(&t, o->l->n_gemms) >=
            hetero_cpu_finish_s(&t, o->l->n_gemms))
            hi = x;
        else
            lo = x;
    }
    return hi;
}

static double best(const struct open_layer *o, int64_t most, int64_t *x)
{
    int64_t at = meeting(o, most);
    const int64_t candidates[] = {1, at - 1, at, most};
    bool all = o->l->machine.cpu_contention > 0 || o->l->machine.link_contention > 0;
    double best_s = finish_at(o, 0);

    *x = 0;
    for (int64_t i = 0; i < (all ? most : 4); i++) {
        int64_t candidate = all ? i + 1 : candidates[i];
        double s;

        if (candidate < 1 || candidate > most)
            continue;
        s = finish_at(o, candidate);
        if (s < best_s) {
            best_s = s;
            *x = candidate;
        }
    }
    return best_s;
}

double hetero_layer_s(const struct hetero_layer *l, int cg_units, int gg_units,
                      int64_t n_accel_tok)
{
    const struct open_layer o = {l, gg_units, cg_units, true};

    return finish_at(&o, n_accel_tok);
}

double hetero_best_cg(const struct hetero_layer *l, int gg_units, int *cg_units)
{
    const struct open_layer o = {.l = l, .gg_units = gg_units};
    int64_t x;
    double s = best(&o, l->n_units - gg_units, &x);

    *cg_units = (int)x;
    return s;
}

double hetero_best_tokens(const struct hetero_layer *l, int cg_units, int gg_units,
                          int64_t *n_accel_tok)
{
    const struct open_layer o = {l, gg_units, cg_units, true};

    return best(&o, l->gemm.n_tok, n_accel_tok);
}
