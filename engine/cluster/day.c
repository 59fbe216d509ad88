#include "cluster/day.h"

#include <math.h>

#define HOUR_S  3600
#define NIGHT_H 8

double cluster_day_rate(const struct cluster_day_opts *o, double h)
{
    double turn = cos(2 * M_PI * (h - o->peak_h) / 24);
    bool is_night = turn < -cos(M_PI * NIGHT_H / 24);

    return o->per_day / (24 * HOUR_S) * (1 + o->swing * turn) +
           (is_night ? o->night_per_day / (NIGHT_H * HOUR_S) : 0);
}

int cluster_day_open(struct cluster_day *out, const struct cluster_day_opts *o)
{
    if (!(o->per_day > 0) || !(o->night_per_day >= 0) ||
        !(o->swing >= 0 && o->swing <= 1))
        return err_set(
            ERR_ARG,
            "a day of %g requests and %g at night with a swing of %g; expected "
            "some requests, and a swing in [0, 1]",
            o->per_day, o->night_per_day, o->swing);
    if (!(o->n_hours > 0) || !(o->from_h >= 0) || o->n_lengths < 1)
        return err_set(
            ERR_ARG,
            "a day from hour %g, of %g hours and %lld lengths; expected some of each",
            o->from_h, o->n_hours, (long long)o->n_lengths);
    *out = (struct cluster_day){.o = *o};
    rng_init(&out->arrival, o->seed + (uint64_t)o->number, "day arrival");
    rng_init(&out->length, o->seed + (uint64_t)o->number, "day length");
    return OK;
}

/* Arrivals at the highest rate, of which each is kept with the share of the present one. */
bool cluster_day_next(void *ctx, struct cluster_arrival *out)
{
    struct cluster_day *d = ctx;
    const struct cluster_lengths *l;
    const double most = d->o.per_day / (24 * HOUR_S) * (1 + d->o.swing) +
                        d->o.night_per_day / (NIGHT_H * HOUR_S);

    do {
        d->t_s += rng_exp(&d->arrival) / most;
        if (d->t_s >= HOUR_S * d->o.n_hours)
            return false;
    } while (rng_f64(&d->arrival) * most >=
             cluster_day_rate(&d->o, d->o.from_h + d->t_s / HOUR_S));
    l = &d->o.lengths[rng_below(&d->length, (uint64_t)d->o.n_lengths)];
    *out = (struct cluster_arrival){.t_ns = (int64_t)(1e9 * d->t_s),
                                    .n_prompt = l->n_prompt,
                                    .n_output = l->n_output};
    return true;
}
