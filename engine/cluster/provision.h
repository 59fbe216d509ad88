/* cluster/provision.h - how many machines of which kind a load needs.
 *
 * A request's slowdown is its latency over that of the same request alone on a reference machine. A
 * cluster meets the SLOs where the 50th, 90th and 99th percentile of the slowdowns of TTFT, TBT
 * and E2E are each within Table VI. Its rate is the highest at which it does, by bisection. A
 * design's best size is searched where more machines never lower the rate, so that each number
 * of prompt machines needs one bisection, or one evaluation. Sizes that cost more than the best so
 * far are not evaluated.
 * Paper: Splitwise IV-D, V-B.   Threads: pure functions of what the callbacks say. */
#ifndef CLUSTER_PROVISION_H
#define CLUSTER_PROVISION_H

#include <stdbool.h>

#include "base/err.h"

enum { CLUSTER_TTFT, CLUSTER_TBT, CLUSTER_E2E, CLUSTER_N_LATENCIES };
#define CLUSTER_N_PERCENTILES 3
extern const double cluster_percentiles[CLUSTER_N_PERCENTILES]; /* 0.5 0.9 0.99 */
extern const double cluster_slo[CLUSTER_N_LATENCIES][CLUSTER_N_PERCENTILES];

/* `slowdown` as cluster_slo. false also where one is NaN. */
bool cluster_slo_met(const double slowdown[CLUSTER_N_LATENCIES][CLUSTER_N_PERCENTILES]);

/* Sets *met: are the SLOs met at this rate? */
typedef int (*cluster_meets_fn)(void *ctx, double rate, bool *met);
/* The highest rate in [lo, hi] that meets, to a factor of 1 + tolerance. 0: `lo` does not. hi where
 * that does, too. Errors: those of `meets`. */
MUST int cluster_max_rate(double *out, cluster_meets_fn meets, void *ctx, double lo,
                          double hi, double tolerance);

enum cluster_goal { CLUSTER_MIN_COST, CLUSTER_MIN_POWER, CLUSTER_MAX_RATE };
struct cluster_size {
    int n_prompt, n_token;
    double rate, cost, power;
};
typedef int (*cluster_rate_fn)(void *ctx, int n_prompt, int n_token, double *rate);
struct cluster_provision_opts {
    enum cluster_goal goal;
    int max_prompt, max_token; /* each kind has at least 1 */
    double prompt_cost, token_cost, prompt_power,
        token_power;            /* of one machine, above 0 */
    double min_rate;            /* where the goal is cost or power */
    double max_cost, max_power; /* 0: no limit; a finite one bounds the rate's goal */
    cluster_rate_fn rate;
    void *ctx;
};
/* The best size; of equal ones that with fewer machines, then with fewer prompt machines.
 *   n_evaluated  calls of rate(); may be NULL
 * ERR_NOTFOUND: no size within the limits reaches min_rate. */
MUST int cluster_provision(struct cluster_size *out, int *n_evaluated,
                           const struct cluster_provision_opts *o);

#endif
