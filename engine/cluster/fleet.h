/* cluster/fleet.h - a fleet: many clusters, called pools, that share nothing, each with its own
 * part of the requests, simulated on several threads.
 *
 * A pool is one run of cluster_run() with a stream of requests, so that memory is that of the live
 * requests of the pools in work. What is kept of a pool is its counts, a histogram of each latency
 * and a row of each hour. They are added in order of the pools, whichever thread had which, so that
 * the same seed gives the same fleet, to the bit, with any number of threads.
 * Threads: cluster_fleet_run() has one owner, and calls open() and close() from its own threads. */
#ifndef CLUSTER_FLEET_H
#define CLUSTER_FLEET_H

#include "cluster/day.h"

#define CLUSTER_KINDS 4    /* of machines, at most */
#define CLUSTER_HOURS 24   /* a run of several days adds the same hours */
#define CLUSTER_BINS  1024 /* of a histogram: 32 in each doubling, from 2^-8 ms */

struct cluster_histogram {
    int64_t n[CLUSTER_BINS];
};
void cluster_histogram_add(struct cluster_histogram *h, int64_t t_ns);
/* In ms, to 2.2 %; NaN: it is empty. */
double cluster_histogram_quantile(const struct cluster_histogram *h, double at);

struct cluster_hour {
    int64_t n_requests, n_good; /* that arrived in it; within the objectives */
};

struct cluster_fleet_part { /* a pool, or all */
    struct cluster_stat stat;
    int64_t n_restarted;     /* requests that a failure made start again */
    int64_t n_good, n_ended; /* within the objectives; of all */
    int64_t n_output_tok;
    int64_t n_on[CLUSTER_KINDS]
                [2];              /* requests by kind of machine: prompts, later tokens */
    double busy_s[CLUSTER_KINDS]; /* of machines, by kind */
    double machine_s[CLUSTER_KINDS]; /* until the last request of their pool has ended */
    double drained_s[CLUSTER_KINDS];
    struct cluster_hour hour[CLUSTER_HOURS];
    struct cluster_histogram ttft, tpot;
};

struct cluster_fleet_pool { /* what open() sets */
    struct cluster_opts
        cluster; /* but for requests, observers and busy_ns. Lent until close(). */
    struct cluster_day_opts day;
    const int *kinds; /* [n_machines] below CLUSTER_KINDS */
};

struct cluster_fleet_opts {
    int n_pools, n_threads;
    double ttft_ms,
        tpot_ms; /* objectives of a request: time to the first token, per later one */
    int (*open)(void *ctx, int pool, struct cluster_fleet_pool *out);
    void (*close)(void *ctx,
                  struct cluster_fleet_pool *p); /* also after an error of open() */
    void *ctx;
};
/* ERR_ARG: the options. Otherwise the error of the first pool that has one,
 * and its message. */
MUST int cluster_fleet_run(struct cluster_fleet_part *out,
                           const struct cluster_fleet_opts *o);

#endif
