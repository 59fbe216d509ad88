#include "cluster/provision.h"

#include <math.h>
#include <stddef.h>

const double cluster_percentiles[CLUSTER_N_PERCENTILES] = {0.5, 0.9, 0.99};
const double cluster_slo[CLUSTER_N_LATENCIES][CLUSTER_N_PERCENTILES] = {
    {2, 3, 6}, {1.25, 1.5, 5}, {1.25, 1.5, 5}};

bool cluster_slo_met(const double slowdown[CLUSTER_N_LATENCIES][CLUSTER_N_PERCENTILES])
{
    bool met = true;

    for (int i = 0; i < CLUSTER_N_LATENCIES; i++)
        for (int k = 0; k < CLUSTER_N_PERCENTILES; k++)
            met = met && slowdown[i][k] <= cluster_slo[i][k];
    return met;
}

int cluster_max_rate(double *out, cluster_meets_fn meets, void *ctx, double lo, double hi,
                     double tolerance)
{
    bool met;

    *out = 0;
    TRY(meets(ctx, lo, &met));
    if (!met)
        return OK;
    TRY(meets(ctx, hi, &met));
    if (met)
        lo = hi;
    while (hi > lo * (1 + tolerance)) {
        double middle = sqrt(lo * hi);

        TRY(meets(ctx, middle, &met));
        *(met ? &lo : &hi) = middle;
    }
    *out = lo;
    return OK;
}

struct search {
    const struct cluster_provision_opts *o;
    struct cluster_size best;
    bool any;
    int n_evaluated;
};

static struct cluster_size size_of(const struct cluster_provision_opts *o, int p, int t)
{
    return (struct cluster_size){.n_prompt = p,
                                 .n_token = t,
                                 .cost = p * o->prompt_cost + t * o->token_cost,
                                 .power = p * o->prompt_power + t * o->token_power};
}

static bool is_within(const struct cluster_provision_opts *o,
                      const struct cluster_size *s)
{
    const double slack = 1 + 1e-9; /* sums of decimals */

    return (o->max_cost == 0 || s->cost <= o->max_cost * slack) &&
           (o->max_power == 0 || s->power <= o->max_power * slack);
}

static double badness(const struct cluster_provision_opts *o,
                      const struct cluster_size *s)
{
    return o->goal == CLUSTER_MIN_COST    ? s->cost
           : o->goal == CLUSTER_MIN_POWER ? s->power
                                          : -s->rate;
}

static void offer(struct search *s, const struct cluster_size *x)
{
    double a = badness(s->o, x), b = badness(s->o, &s->best);
    int n = x->n_prompt + x->n_token, best_n = s->best.n_prompt + s->best.n_token;

    if (s->any && (a > b + 1e-9 * fabs(b) ||
                   (fabs(a - b) <= 1e-9 * fabs(b) &&
                    (n > best_n || (n == best_n && x->n_prompt >= s->best.n_prompt)))))
        return;
    s->best = *x;
    s->any = true;
}

static int evaluate(struct search *s, struct cluster_size *x)
{
    s->n_evaluated++;
    return s->o->rate(s->o->ctx, x->n_prompt, x->n_token, &x->rate);
}

/* The most token machines within the limits, next to p prompt machines; 0: none. */
static int most_token(const struct cluster_provision_opts *o, int p)
{
    int t = o->max_token;
    struct cluster_size x = size_of(o, p, t);

    while (t > 0 && !is_within(o, &x))
        x = size_of(o, p, --t);
    return t;
}

/* The most machines, at most `most`, with which the result is not worse than the best so far. */
static int most_not_worse(const struct search *s, int p, int most)
{
    double best = badness(s->o, &s->best) * (1 + 1e-9);

    for (; s->any && most > 0; most--) {
        struct cluster_size x = size_of(s->o, p, most);

        if (badness(s->o, &x) <= best)
            break;
    }
    return most;
}

/* The fewest token machines that reach min_rate. */
static int least_token(struct search *s, int p, int most)
{
    struct cluster_size hi = size_of(s->o, p, most);
    int lo = 0;

    TRY(evaluate(s, &hi));
    if (hi.rate < s->o->min_rate)
        return OK;
    while (hi.n_token - lo > 1) {
        struct cluster_size x = size_of(s->o, p, (hi.n_token + lo) / 2);

        TRY(evaluate(s, &x));
        if (x.rate >= s->o->min_rate)
            hi = x;
        else
            lo = x.n_token;
    }
    offer(s, &hi);
    return OK;
}

int cluster_provision(struct cluster_size *out, int *n_evaluated,
                      const struct cluster_provision_opts *o)
{
    struct search s = {.o = o};

    for (int p = 1; p <= o->max_prompt; p++) {
        int most = most_token(o, p);

        if (most < 1)
            continue;
        if (o->goal == CLUSTER_MAX_RATE) {
            struct cluster_size x = size_of(o, p, most);

            TRY(evaluate(&s, &x));
            offer(&s, &x);
        } else if ((most = most_not_worse(&s, p, most)) > 0) {
            TRY(least_token(&s, p, most));
        }
    }
    if (n_evaluated)
        *n_evaluated = s.n_evaluated;
    if (!s.any)
        return err_set(ERR_NOTFOUND,
                       "no size up to %d prompt and %d token machines "
                       "reaches a rate of %g within the limits",
                       o->max_prompt, o->max_token, o->min_rate);
    *out = s.best;
    return OK;
}
