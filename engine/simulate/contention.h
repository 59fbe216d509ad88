/* simulate/contention.h - simulates machines that are not available: how long a step
 * takes when cores share clusters, memory controllers and links.
 *
 * A machine is two files. machines/NAME.json is what tools report on that machine (a
 * hwloc synthetic string and its source). It becomes a struct topo_machine.
 * machines/params/NAME.json has the rates and the structure that no tool reports, with
 * their sources, and marks the numbers that are assumptions. Only this module reads the
 * second file. The search can learn about it only through simulated times.
 * Equations: Sandwich 3.3, Fig. 3.   Threads: any thread may use a simulator, which is
 * immutable. A simulation or measurement allocates nothing and needs half a megabyte of
 * stack. */
#ifndef SIMULATE_CONTENTION_H
#define SIMULATE_CONTENTION_H

#include "topo/service_config.h"
#include "simulate/workload.h"

#define SIMULATE_DOMAINS_MAX 4
#define SIMULATE_NODES_MAX   64
#define SIMULATE_PUS_MAX     2048
#define SIMULATE_SIZES_MAX   4
#define SIMULATE_LINKS_MAX   12

/* Cores that share bandwidth. Each domain has `of` members, which are cores or, from the
 * second level on, domains of the previous level. Members of a domain are `stride` apart
 * in the numbering of their memory node. */
struct simulate_bandwidth_domain {
    char name[16]; /* "CCL", "CCX", "CCD", "quadrant" */
    int of, stride;
    double gbps; /* that the members of each domain share; INFINITY: no limit */
    /* The rest is for random machines only; all 0: domains of equal size that tile.
     * sizes: the numbers of members that take turns along a memory node, in place of `of`.
     * The members are taken in the order 0, stride, 2 * stride ... 1, 1 + stride ..., and the
     * last domain of a node gets what is left. Ends at the first 0. */
    int sizes[SIMULATE_SIZES_MAX];
    bool
        of_cores; /* the members are cores on this level, too, so that it need not nest */
};

/* One direction of the links between two packages: what `to` reads from `from`. */
struct simulate_link {
    int to, from;
    double factor; /* its bandwidth relative to link_gbps */
};

struct simulate_machine_params {
    char name[64];
    int n_domains;
    struct simulate_bandwidth_domain
        domains[SIMULATE_DOMAINS_MAX]; /* cores' level first */
    double core_gbps;                  /* read by one thread alone from local memory */
    double sharpness;                  /* s of smin(a, b; s) = (a^-s + b^-s)^(-1/s) */
    double node_gbps; /* of a memory node; multiplied by the node's factor */
    double node_factor[SIMULATE_NODES_MAX]; /* 1, or less for slow nodes */
    /* n0, g: when n > n0 cores read a node, its bandwidth falls by the fraction
     * g * (n - n0). */
    double contention_from, contention_per_core;
    /* lambda: speed of one thread that reads another node of its package (same_package_factor) or
     * another package (other_package_factor), relative to its local speed. */
    double same_package_factor, other_package_factor;
    double link_gbps; /* from one package to another, all links together */
    int n_links;
    struct simulate_link links[SIMULATE_LINKS_MAX]; /* those that differ from link_gbps */
    /* Gathered reads: latency of local memory, cache misses in flight per core, and the
     * fraction by which each other active core of the cluster slows them. */
    double latency_ns, mlp, kappa;
    double core_gflops; /* f32, sustained by one core */
    double smt_factor;  /* speed of an SMT sibling when both run, relative to alone */
    double sync_ns[4];  /* a hand-off within a cluster, a node, a package, and beyond */
    /* One measurement: its noise, and the fraction by which a spike lengthens it with
     * probability spike_chance. */
    double noise_frac, spike_frac, spike_chance;
};

struct simulate_machine;

/* Open a simulator from a file of machine parameters. `machine` is what tools report of
 * the machine; it is lent until simulate_machine_close(). ERR_FORMAT: the message names
 * the file and the key. ERR_ARG: the domains do not tile the machine's nodes. ERR_LIMIT:
 * more than SIMULATE_PUS_MAX CPUs, or more than SIMULATE_NODES_MAX nodes or packages. */
MUST int simulate_machine_open(struct simulate_machine **out,
                               const struct topo_machine *machine,
                               const char *params_path);
/* Open a simulator from `params`, which are copied, for random machines. ERR_ARG: a
 * parameter is out of its range. Otherwise as simulate_machine_open(). */
MUST int simulate_machine_new(struct simulate_machine **out,
                              const struct topo_machine *machine,
                              const struct simulate_machine_params *params);
void simulate_machine_close(struct simulate_machine **s);
/* The parameters, lent. For tests, figures and reports only: a search must not read
 * them. */
const struct simulate_machine_params *simulate_params(const struct simulate_machine *s);
/* The bandwidth domain of a level that a PU (an index into machine->pus) belongs to, numbered
 * over the whole machine; -1: there is no such level. Only for tests and reports. */
int simulate_domain_of(const struct simulate_machine *s, int level, int pu);

/* Set the parameters of this host from three measurements: the bandwidths of one thread
 * and of all CPUs reading (GB/s), and the f32 peak of all CPUs (GFLOP/s). The simulator
 * then gives the same two bandwidths. The parameters have equal nodes and no bandwidth
 * domains. All other parameters (remote speeds, latencies, hand-offs) are assumptions:
 * usual values of such machines. If all_gbps exceeds one_gbps times the number of cores,
 * the bandwidth of one core is raised to its share of all_gbps. ERR_ARG: a measurement is
 * not positive, or one thread is faster than all CPUs of a memory node. ERR_LIMIT: more
 * than SIMULATE_NODES_MAX nodes. */
MUST int simulate_machine_params_calibrate(struct simulate_machine_params *out,
                                           const struct topo_machine *machine,
                                           double one_gbps, double all_gbps,
                                           double peak_gflops);

/* The latency of a read at this utilisation of its memory node (0..1), relative to an
 * idle node. Fitted to the loaded latencies of a Cascade Lake. */
double simulate_loaded_latency(double load_frac);

/* Set *seconds to the weighted mean time of the workload's steps under configuration `c`,
 * without noise. `placement` is the configuration that placed the weights (decode's);
 * NULL: `c` itself. The weights of its rank r are spread evenly over that rank's memory
 * nodes. Every rank is assumed to have as large a share of the work as the largest.
 * ERR_ARG: a configuration is of another machine, or the steps' weights in the mean add
 * up to 0. */
MUST int simulate_seconds(const struct simulate_machine *s, const struct topo_config *c,
                          const struct topo_config *placement,
                          const struct simulate_workload *workload, double *seconds);
/* Simulate one measurement: the same time with noise. The noise depends only on `seed`,
 * the configuration and `repeat`. */
MUST int simulate_measure(const struct simulate_machine *s, const struct topo_config *c,
                          const struct topo_config *placement,
                          const struct simulate_workload *workload, uint64_t seed,
                          int repeat, double *seconds);

/* Set *gbps to the bandwidth that STREAM would report on these PUs (indices into
 * machine->pus), in GB/s. Each PU reads the same number of local bytes, so the slowest
 * one decides: n_pus * min(rate). ERR_ARG: the list is empty, or has a PU that the
 * machine lacks, or the same PU twice. */
MUST int simulate_stream_gbps(const struct simulate_machine *s, const int *pus, int n_pus,
                              double *gbps);

/* Open a machine by name. `name` is NAME for the shipped file `dir`/NAME.json, or a path
 * to such a file (it has a '/' or ends in .json). *out: what tools report of the machine,
 * named after the file, owned by the caller. params_path[n]: the path of its parameters,
 * params/NAME.json next to the file; "" if there are none. ERR_NOTFOUND: the message has
 * the nearest name. ERR_FORMAT: the message names the file and the key. ERR_LIMIT: the
 * path has n bytes or more. */
MUST int simulate_named_machine_open(struct topo_machine **out, const char *name,
                                     const char *dir, char *params_path, size_t n);
/* The names of the shipped machines in `dir`: sorted, NULL-terminated, lent until this
 * thread's next call. */
MUST int simulate_named_machines(const char *dir, const char *const **names);

#endif
