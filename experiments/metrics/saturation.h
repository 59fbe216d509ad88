/* experiments/metrics/saturation.h - do requests come faster than the system can serve them? Asked
 * after every event of a cell while it runs.
 *
 * In a queue the wait of each request is that of the one before, plus a service, minus the gap
 * between the two, and never below 0 (Lindley 1952): a random walk that is reflected at 0. Its
 * drift is negative where the system keeps up and positive where it does not. Two such walks are
 * followed, by the order of arrivals:
 *   - TTFT of each request, in ms
 *   - concurrency: how many requests came during the stay of each, which is what it leaves in the
 *     system where requests end in order (Haji and Newell 1971). Requests in the system at one
 *     moment would also grow while slots fill for the first time, however low the load.
 * The statistic is Page's CUSUM (1954): the value now less the lowest so far. At the capacity,
 * where the drift is 0, it is like |B|, the absolute value of a Brownian motion (Lévy 1948), and
 * below the capacity it is smaller. Robbins' normal mixture (1970) bounds |B| at all times at once,
 *     |B(n)| < sqrt(v (n + r) (2 ln(1/a) + ln((n + r)/r)))  for all n, with probability 1 - a,
 * so that a check after every request raises no further alarm. The variance v of a step is measured
 * (an asymptotic confidence sequence: Waudby-Smith et al. 2024) and is at least that of the
 * arrivals, over gaps and over runs of gaps, as the schedule of the cell has them: the bursts of a
 * trace are known before it runs. Half of the false alarms are given to each walk. In addition the
 * backlog, the requests in the system, must exceed the square root of the number of arrivals, so
 * that prompts that become longer at a low load are no saturation.
 *
 * False alarms: at most METRICS_SATURATION_ALPHA of the cells whose rate is at or below the
 * capacity, whatever their length. The bound is asymptotic, and steps of service are taken as
 * independent. tests/metrics/test_saturation.c measures it on simulated queues: none of 200 M/D/1
 * queues each at 0.5, 0.8 and 0.9 of the capacity in 2000 arrivals, 1 of 1000 at the capacity.
 * Above it all of 200 are found: at 1.2 times after 500 arrivals on average and 2500 at most, at
 * 1.5 times after 120 and 450, at 2 times after 60 and 200. Services that differ ask for more.
 * Bursts of 50 arrivals at five times the rate, on average, give 2 % at 0.9 of the capacity.
 *
 * A request whose first token (end) has not come has waited at least until now, and that counts
 * as long as no later one was faster. One that OVERTAKEN later ones have overtaken is left out.
 *   Threads: one owner. Nothing is allocated after metrics_saturation_open(). */
#ifndef METRICS_SATURATION_H
#define METRICS_SATURATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A sweep of 20 rates below the capacity then has less than one false alarm in five. */
#define METRICS_SATURATION_ALPHA 0.01

enum metrics_walk { METRICS_WALK_TTFT, METRICS_WALK_CONCURRENCY, METRICS_N_WALKS };
const char *metrics_walk_name(enum metrics_walk w); /* "ttft", "concurrency" */

/* The saturation that was found, as it was at the first event that showed it. */
struct metrics_saturated {
    bool found;
    enum metrics_walk walk;         /* that exceeded its bound first */
    double growth, bound;           /* of it since its lowest value: ms, or requests */
    double slope;                   /* of that growth, per arrival */
    size_t n_arrivals, n_in_system; /* so far */
    int64_t t_ns;
};

struct metrics_saturation;

/* For a cell of n requests, given back with metrics_saturation_close().
 *   arrival_s  [n_arrivals], non-decreasing: when those arrive that the schedule fixes, of which
 *              the variance of arrivals is taken; read during the call only
 * ERR_NOMEM. */
MUST int metrics_saturation_open(struct metrics_saturation **out, size_t n,
                                 const double *arrival_s, size_t n_arrivals);
void metrics_saturation_close(struct metrics_saturation **s);

/* Request `i`, 0 <= i < n, arrives (once), has its first token, and ends. Times never decrease.
 * An event of a request that did not arrive, or after its end, is ignored. `failed`: its times
 * say nothing of the queue. */
void metrics_saturation_arrival(struct metrics_saturation *s, size_t i, int64_t t_ns);
void metrics_saturation_first_token(struct metrics_saturation *s, size_t i, int64_t t_ns);
void metrics_saturation_end(struct metrics_saturation *s, size_t i, int64_t t_ns,
                            bool failed);
/* Lent; it changes no more once .found. */
const struct metrics_saturated *
metrics_saturation_result(const struct metrics_saturation *s);

#endif
