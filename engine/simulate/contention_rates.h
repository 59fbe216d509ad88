/* simulate/contention_rates.h - what the simulator of contention knows before it prices a workload:
 * the machine, how fast the slowest thread of a layout can read, gather and compute, and how long
 * threads and ranks wait for each other.   Threads: any; all of it is plain data that is not
 * changed. */
#ifndef SIMULATE_CONTENTION_RATES_H
#define SIMULATE_CONTENTION_RATES_H

#include "base/json.h"

#include "simulate/contention.h"

struct simulate_machine {
    const struct topo_machine *machine; /* lent */
    struct simulate_machine_params params;
    int n_cores, n_packages;
    int core[SIMULATE_PUS_MAX];             /* of each of machine->pus */
    int core_node[SIMULATE_PUS_MAX];        /* of each core */
    int node_package[SIMULATE_NODES_MAX];   /* -1: no CPU is nearest to it */
    int domain_count[SIMULATE_DOMAINS_MAX]; /* of each kind, on the whole machine */
    int domain_of[SIMULATE_DOMAINS_MAX][SIMULATE_PUS_MAX]; /* of each core, by kind */
};

/* The PUs that compute, as ranks of equal size, and the layout that placed the data. */
struct simulate_layout {
    const int *pus; /* [n_ranks * n_threads] indices into machine->pus */
    int n_ranks, n_threads;
    const struct simulate_layout
        *placement; /* NULL: this one; of a placement always NULL */
};

/* The rates of the slowest thread, while all others work too. */
struct simulate_rates {
    double read_gbps;   /* a stream */
    double gather_gbps; /* pieces of a cache line, bounded by latency */
    double gflops;
};

/* (a^-s + b^-s)^(-1/s): about the smaller one, less where the two are close. */
double simulate_smin(double a, double b, double s);

/* ERR_NOMEM. */
MUST int simulate_rates(const struct simulate_machine *s, const struct simulate_layout *l,
                        struct simulate_rates *out);

/* One barrier of the threads of the slowest rank, ns. */
double simulate_barrier_ns(const struct simulate_machine *s,
                           const struct simulate_layout *l);
/* A hand-off between the farthest two neighbours of the ring of ranks, ns, and its lambda. */
void simulate_neighbours(const struct simulate_machine *s,
                         const struct simulate_layout *l, double *hand_off_ns,
                         double *lambda);
/* Speed of a read by a core of one node from another, relative to a local one. */
double simulate_lambda(const struct simulate_machine *s, int node, int from);

/* machine_params.c: is every number in its range? `where` begins the error line. */
MUST int simulate_machine_params_check(const struct simulate_machine_params *t,
                                       const struct topo_machine *m, int code,
                                       const char *where);
MUST int simulate_machine_params_read(struct simulate_machine_params *out,
                                      const struct topo_machine *m, const char *path);

#endif
