/* tests/metrics/noise.h - what the noise of a machine makes of runs in turn. */
#ifndef TESTS_METRICS_NOISE_H
#define TESTS_METRICS_NOISE_H

#include <math.h>
#include <stdbool.h>

#include "base/rng.h"
#include "experiments/metrics/compare.h"

enum { MAX_ROUNDS = 40, N_ARMS = 3 };

struct side {
    struct compare_run runs[MAX_ROUNDS];
    struct compare_side side;
};

/* A restart for each value. */
static inline const struct compare_side *side_of(struct side *s, const double *logs,
                                                 size_t n)
{
    *s = (struct side){.side = {.runs = s->runs, .n = n}};
    for (size_t i = 0; i < n; i++)
        s->runs[i] = (struct compare_run){.restart = (int)i, .value = exp(logs[i])};
    return &s->side;
}

/* Deviations are those of the logarithm of a time. */
struct noise {
    const char *what;
    int n_rounds;
    bool arm; /* A again takes part, else A's own restarts are divided */
    double restart_dev;
    int tail_df;            /* of Student's t; 0: normal */
    double walk_dev, trend; /* of the machine, from each run to the next */
    double burst,
        burst_len;  /* how much slower; mean length in runs. One run in ten begins one */
    double exp_dev; /* mean of what is only ever added */
};

/* Student's t with `df` degrees of freedom, 0: normal. */
static inline double tailed(int df, struct rng *rng)
{
    double z = rng_normal(rng);

    return df ? z / sqrt(rng_gamma(rng, df / 2.0) / (df / 2.0)) : z;
}

/* What the machine and the noise make of each run: in time, as `testbed compare` runs them.
 * logs: [n_arms][s->n_rounds]. */
static inline void draw_runs(double logs[N_ARMS][MAX_ROUNDS], const struct noise *s,
                             int n_arms, struct rng *rng)
{
    double machine = 0;
    int burst_left = 0;

    for (int round = 0; round < s->n_rounds; round++)
        for (int turn = 0; turn < n_arms; turn++) {
            int at = round % 2 ? n_arms - 1 - turn : turn;
            int arm = n_arms == 2 ? at : (round / 2 + at) % n_arms;

            machine += s->trend + s->walk_dev * rng_normal(rng);
            burst_left -= burst_left > 0;
            if (s->burst > 0 && rng_f64(rng) < 0.1)
                burst_left = 1 + (int)(s->burst_len * rng_exp(rng));
            logs[arm][round] = machine + s->restart_dev * tailed(s->tail_df, rng) +
                               s->exp_dev * rng_exp(rng) +
                               (burst_left ? s->burst * rng_f64(rng) : 0);
        }
}

#endif
