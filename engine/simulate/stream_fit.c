#include "simulate/stream_fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "simulate/contention_rates.h"

const struct simulate_stream_point simulate_stream_kunpeng[SIMULATE_STREAM_KUNPENG_N] = {
    {{1}, 12.4, 0},
    {{4}, 30.7, 26.4},
    {{3, 1}, 35.0, 30.6},
    {{2, 2}, 39.1, 32.9},
    {{1, 1, 1, 1}, 40.8, 35.1},
    {{4, 2}, 39.3, 35.2},
    {{3, 3}, 44.4, 41.7},
    {{2, 2, 2}, 46.2, 44.3},
    {{1, 1, 1, 1, 1, 1}, 47.6, 45.7},
    {{4, 4}, 46.7, 39.9},
    {{2, 2, 2, 2}, 50.5, 49.7},
    {{4, 4, 4}, 57.1, 55.9},
    {{3, 3, 3, 3}, 59.1, 59.0},
    {{2, 2, 2, 2, 2, 2}, 59.4, 59.3},
    {{4, 4, 4, 4}, 64.7, 65.1},
    {{3, 2, 3, 3, 2, 3}, 65.2, 66.0},
    {{4, 4, 4, 4, 4}, 62.9, 62.5},
    {{4, 4, 4, 4, 4, 4}, 63.3, 64.2},
};

double simulate_stream_of(const struct simulate_machine_params *t,
                          const struct simulate_stream_point *p)
{
    double sum = 0, slowest = INFINITY, crowd;
    int n = 0;

    for (int c = 0; c < SIMULATE_STREAM_CLUSTERS; c++) {
        double gbps =
            simulate_smin(p->on[c] * t->core_gbps, t->domains[0].gbps, t->sharpness);

        sum += gbps;
        n += p->on[c];
        if (p->on[c])
            slowest = fmin(slowest, gbps / p->on[c]);
    }
    crowd = 1 - fmax(0, n - t->contention_from) * t->contention_per_core;
    return n * slowest * simulate_smin(sum, t->node_gbps, t->sharpness) / sum * crowd;
}

/* ---- least squares: Nelder and Mead's simplex in the logarithms of the rates ---- */

enum { N_FIT = 5, ROUNDS = 400 };

struct vertex {
    double x[N_FIT], cost;
};

static void rates_of(struct simulate_machine_params *t, double *rates[N_FIT])
{
    rates[0] = &t->core_gbps;
    rates[1] = &t->domains[0].gbps;
    rates[2] = &t->node_gbps;
    rates[3] = &t->sharpness;
    rates[4] = &t->contention_per_core;
}

struct problem {
    struct simulate_machine_params *t; /* scratch */
    const struct simulate_stream_point *v;
    int n;
};

static void put(const struct problem *p, const double *x)
{
    double *rates[N_FIT];

    rates_of(p->t, rates);
    for (int i = 0; i < N_FIT; i++)
        *rates[i] = exp(x[i]);
}

/* The mean squared deviation; what no memory node can be costs more. */
static void price(const struct problem *p, struct vertex *a)
{
    double sum = 0;

    put(p, a->x);
    for (int i = 0; i < p->n; i++) {
        double e = log(simulate_stream_of(p->t, &p->v[i]) / p->v[i].copy);

        sum += e * e;
    }
    a->cost = sum / p->n;
    if (!(p->t->sharpness >= 0.5 && p->t->sharpness <= 30 &&
          p->t->contention_per_core <= 0.1 && isfinite(a->cost)))
        a->cost = 1e9;
}

/* `from` + f * (middle - from), priced. */
static struct vertex along(const struct problem *p, const double *middle,
                           const struct vertex *from, double f)
{
    struct vertex a;

    for (int i = 0; i < N_FIT; i++)
        a.x[i] = from->x[i] + f * (middle[i] - from->x[i]);
    price(p, &a);
    return a;
}

/* The best first, the worst last. */
static void sort(struct vertex *v)
{
    for (int i = 1; i <= N_FIT; i++)
        for (int k = i; k > 0 && v[k].cost < v[k - 1].cost; k--) {
            struct vertex swap = v[k];

            v[k] = v[k - 1];
            v[k - 1] = swap;
        }
}

static void move(const struct problem *p, struct vertex *v)
{
    double middle[N_FIT] = {0};
    struct vertex *worst = &v[N_FIT], far, near;

    for (int k = 0; k < N_FIT; k++)
        for (int i = 0; i < N_FIT; i++)
            middle[i] += v[k].x[i] / N_FIT;
    far = along(p, middle, worst, 2);
    if (far.cost < v[0].cost) {
        near = along(p, middle, worst, 3);
        *worst = near.cost < far.cost ? near : far;
        return;
    }
    if (far.cost < v[N_FIT - 1].cost) {
        *worst = far;
        return;
    }
    near = along(p, middle, far.cost < worst->cost ? &far : worst, 0.5);
    if (near.cost < fmin(far.cost, worst->cost)) {
        *worst = near;
        return;
    }
    for (int k = 1; k <= N_FIT; k++)
        v[k] = along(p, v[0].x, &v[k], 0.5);
}

double simulate_stream_fit(struct simulate_machine_params *t,
                           const struct simulate_stream_point *points, int n)
{
    const struct problem p = {t, points, n};
    double *rates[N_FIT];
    struct vertex v[N_FIT + 1];

    rates_of(t, rates);
    for (int k = 0; k <= N_FIT; k++)
        for (int i = 0; i < N_FIT; i++)
            v[k].x[i] = log(fmax(*rates[i], 1e-6)) + (k == i + 1 ? 0.1 : 0);
    for (int k = 0; k <= N_FIT; k++)
        price(&p, &v[k]);
    for (int r = 0; r < ROUNDS; r++) {
        sort(v);
        move(&p, v);
    }
    sort(v);
    put(&p, v[0].x);
    return sqrt(v[0].cost);
}

void simulate_stream_bootstrap(struct simulate_machine_params *out,
                               const struct simulate_machine_params *fitted,
                               const struct simulate_stream_point *v, int n,
                               uint64_t seed, int draw)
{
    struct simulate_stream_point made[SIMULATE_STREAM_POINTS_MAX];
    double residual[SIMULATE_STREAM_POINTS_MAX], mean = 0;
    double wider = sqrt((double)n / (n - N_FIT));
    char stream[48];
    struct rng r;

    for (int i = 0; i < n; i++) {
        residual[i] = log(v[i].copy / simulate_stream_of(fitted, &v[i]));
        mean += residual[i] / n;
    }
    snprintf(stream, sizeof(stream), "stream_bootstrap %d", draw);
    rng_init(&r, seed, stream);
    memcpy(made, v, (size_t)n * sizeof(*v));
    for (int i = 0; i < n; i++)
        made[i].copy = simulate_stream_of(fitted, &v[i]) *
                       exp(wider * (residual[rng_below(&r, (uint64_t)n)] - mean));
    *out = *fitted;
    simulate_stream_fit(out, made, n);
}
