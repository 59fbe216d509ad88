/* topo/contention_sim.h - inside of the contention simulator: what its files share.
 *
 * A call has two halves. contention_rates.c finds how fast the slowest thread of a layout
 * can read, gather and compute, which no work changes; contention.c prices works with it.
 *   Threads: any; all of it is plain data that nobody changes. */
#ifndef TOPO_CONTENTION_SIM_H
#define TOPO_CONTENTION_SIM_H

#include "base/json.h"

#include "topo/contention.h"

struct topo_sim {
    const struct topo_machine *machine; /* lent */
    struct topo_truth truth;
    int n_cores, n_packages;
    int core[TOPO_SIM_PUS_MAX];       /* of each of machine->pus */
    int core_node[TOPO_SIM_PUS_MAX];  /* of each core */
    int node_package[TOPO_NODES_MAX]; /* -1: no CPU is nearest to it */
    int n_ports[TOPO_CAPS_MAX];       /* of each cap, on the whole machine */
    /* The port above: of cores in [0], of the ports of caps[l - 1] in [l]. */
    int port[TOPO_CAPS_MAX][TOPO_SIM_PUS_MAX];
};

/* Which PUs compute, as ranks of equally many, and who placed what they read. */
struct topo_layout {
    const int *pus; /* [n_ranks * n_threads] indices into machine->pus */
    int n_ranks, n_threads;
    const struct topo_layout *placement; /* NULL: this one; of a placement always NULL */
};

/* Of the slowest thread, while all others work too. */
struct topo_rates {
    double read_gbps;   /* a stream */
    double gather_gbps; /* pieces of a cache line, bounded by latency */
    double gflops;
};

/* (a^-s + b^-s)^(-1/s): about the smaller one, less where the two are close. */
double topo_smin(double a, double b, double s);

void topo_sim_rates(const struct topo_sim *s, const struct topo_layout *l,
                    struct topo_rates *out);

/* Of the slowest rank: one barrier of its threads, ns. */
double topo_sim_barrier_ns(const struct topo_sim *s, const struct topo_layout *l);
/* Of the farthest two neighbours of the ring of ranks: a hand-off, ns, and lambda. */
void topo_sim_neighbours(const struct topo_sim *s, const struct topo_layout *l,
                         double *hand_off_ns, double *lambda);
/* Speed of a read by a core of one node from another, relative to a local one. */
double topo_sim_lambda(const struct topo_sim *s, int node, int from);

/* contention_truth.c: is every number in its range? `where` begins the error line. */
MUST int topo_truth_check(const struct topo_truth *t, const struct topo_machine *m,
                          int code, const char *where);
MUST int topo_truth_read(struct topo_truth *out, const struct topo_machine *m,
                         const char *path);

#endif
