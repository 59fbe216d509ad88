/* simulate/stream_fit.h - the rates of a memory node from what STREAM measured on it, and how
 * certain they are.
 *
 * The rates are fitted to a few placements, so that what follows from them has the fit's
 * uncertainty. The bootstrap makes it visible: it scatters the residuals over the placements
 * at random and fits again.   Threads: any. */
#ifndef SIMULATE_STREAM_FIT_H
#define SIMULATE_STREAM_FIT_H

#include "simulate/contention.h"

#define SIMULATE_STREAM_CLUSTERS   6
#define SIMULATE_STREAM_POINTS_MAX 32

/* Cores of each cluster that run, and the bandwidth in GB/s; 0: not published. */
struct simulate_stream_point {
    int on[SIMULATE_STREAM_CLUSTERS];
    double copy, triad;
};

/* lmbench STREAM on a memory node of a Kunpeng 920: 24 cores in clusters of 4, DDR4-2933
 * (openEuler wayca-scheduler). */
#define SIMULATE_STREAM_KUNPENG_N 18
extern const struct simulate_stream_point
    simulate_stream_kunpeng[SIMULATE_STREAM_KUNPENG_N];

/* The bandwidth in GB/s that parameters with one kind of domain, the clusters, give for a
 * placement. It is simulate_stream_gbps() of that placement in closed form. */
double simulate_stream_of(const struct simulate_machine_params *t,
                          const struct simulate_stream_point *p);

/* Fit core_gbps, domains[0].gbps, node_gbps, sharpness and contention_per_core to the copy
 * figures of n points, by least squares of the logarithms, from the values in *t on. Returns
 * the root of the mean squared deviation. */
double simulate_stream_fit(struct simulate_machine_params *t,
                           const struct simulate_stream_point *v, int n);

/* The parameters that were fitted to n points, fitted again to what they give times residuals
 * drawn with replacement. Residuals are enlarged for the degrees of freedom that the fit used.
 * The result depends only on the arguments. */
void simulate_stream_bootstrap(struct simulate_machine_params *out,
                               const struct simulate_machine_params *fitted,
                               const struct simulate_stream_point *v, int n,
                               uint64_t seed, int draw);

#endif
