/* cluster/day.h - a day of requests as a stream: Poisson arrivals whose rate follows the hours. It
 * holds no request.   Threads: one owner. */
#ifndef CLUSTER_DAY_H
#define CLUSTER_DAY_H

#include "base/rng.h"
#include "cluster/cluster.h"

struct cluster_lengths {
    int64_t n_prompt, n_output;
};

struct cluster_day_opts {
    double per_day;         /* requests; their rate at hour h is that of the mean times */
    double swing, peak_h;   /* 1 + swing cos(2 pi (h - peak_h) / 24); swing at most 1 */
    double night_per_day;   /* more requests, in the 8 hours around the lowest rate */
    double from_h, n_hours; /* what is simulated: time 0 is from_h */
    const struct cluster_lengths *lengths; /* [n_lengths] drawn with replacement. Lent. */
    int64_t n_lengths;
    uint64_t seed;
    int number; /* of the stream: another number, other requests */
};

struct cluster_day {
    struct cluster_day_opts o;
    struct rng arrival, length;
    double t_s;
};

/* ERR_ARG: a rate or an hour is out of range, or nothing arrives. */
MUST int cluster_day_open(struct cluster_day *out, const struct cluster_day_opts *o);
/* `next` of struct cluster_opts; ctx is a struct cluster_day. */
bool cluster_day_next(void *ctx, struct cluster_arrival *out);
/* Requests per second at hour h. */
double cluster_day_rate(const struct cluster_day_opts *o, double h);

#endif
