/* simulate/contention.h - machines we do not own, simulated: how long a step takes when cores
 * share clusters, memory controllers and links.
 *
 * A machine is two files. machines/NAME.json is what its owner can see (a hwloc synthetic
 * string and where it was taken from) and becomes a struct topo_machine; machines/params/
 * NAME.json holds the rates and the structure that no tool reports, with its sources, and
 * which of its numbers are assumptions. Only this module reads the second: the search has
 * no way to it but asking for times.
 * Equations: Sandwich 3.1, Fig. 3.   Threads: any; a simulator is immutable. A call
 * allocates nothing and needs half a megabyte of stack. */
#ifndef SIMULATE_CONTENTION_H
#define SIMULATE_CONTENTION_H

#include "topo/service_config.h"
#include "simulate/workload.h"

#define SIMULATE_DOMAINS_MAX 4
#define SIMULATE_NODES_MAX   64
#define SIMULATE_PUS_MAX     2048

/* Cores share bandwidth: `of` of the things below (cores, or the domains before) at
 * a stride of `stride` within their memory node. */
struct simulate_bandwidth_domain {
    char name[16]; /* "CCL", "CCX", "CCD", "quadrant" */
    int of, stride;
    double gbps; /* INFINITY: it limits nothing */
};

struct simulate_machine_params {
    char name[64];
    int n_domains;
    struct simulate_bandwidth_domain
        domains[SIMULATE_DOMAINS_MAX]; /* from the cores up */
    double core_gbps;                  /* one thread alone, local memory */
    double sharpness;                  /* s of smin(a, b; s) = (a^-s + b^-s)^(-1/s) */
    double node_gbps;                  /* a memory node */
    double node_factor[SIMULATE_NODES_MAX]; /* ... times this: slow nodes; 1 */
    double crowd_from, crowd_per_core; /* n0, g: loss when more cores than n0 read it */
    double die_factor, socket_factor;  /* lambda: remote speed of one thread, other node
                                            of the package, other package */
    double link_gbps;                  /* between two packages, all links together */
    double latency_ns, mlp, kappa;     /* of gathered reads: local latency, misses in
                                            flight, growth with the cluster's cores */
    double core_gflops;                /* f32, sustained, one core */
    double smt_factor;                 /* of a sibling's rate when both run */
    double sync_ns[4]; /* a hand-off within a cluster, a node, a package, beyond */
    double noise_frac, spike_frac, spike_chance; /* of one measurement */
};

struct simulate_machine;

/* From a file of machine parameters; `machine` (lent) is what is visible of it. ERR_FORMAT: the file and
 * key; ERR_ARG: domains that do not tile the machine's nodes; ERR_LIMIT: more than
 * SIMULATE_PUS_MAX CPUs, SIMULATE_NODES_MAX nodes or as many packages. */
MUST int simulate_machine_open(struct simulate_machine **out,
                               const struct topo_machine *machine,
                               const char *params_path);
/* From numbers (copied), for random machines. ERR_ARG: one out of its range. */
MUST int simulate_machine_new(struct simulate_machine **out,
                              const struct topo_machine *machine,
                              const struct simulate_machine_params *params);
void simulate_machine_close(struct simulate_machine **s);
/* For tests, figures and people, never for a search. */
const struct simulate_machine_params *simulate_params(const struct simulate_machine *s);

/* The parameters of a machine we do have, from what it measures: one thread reading, all CPUs
 * reading (GB/s), and its f32 peak on all of them. The simulator then gives the same two
 * bandwidths. It claims no hidden structure and equal nodes; what the figures do not say
 * (remote speeds, latencies, hand-offs) is the usual of such machines, an assumption.
 * Where all CPUs together read more than as many single threads could, the figure of one
 * is raised to its share. ERR_ARG: a figure that is not positive, or all CPUs of a memory
 * node together slower than one. */
MUST int simulate_machine_params_calibrate(struct simulate_machine_params *out,
                                           const struct topo_machine *machine,
                                           double one_gbps, double all_gbps,
                                           double peak_gflops);

/* How many times longer a read takes at this utilisation of its memory node, 0..1; fitted
 * to the loaded latencies of a Cascade Lake. */
double simulate_loaded_latency(double load_frac);

/* The weighted mean time of the steps, without noise.
 * Where weights lie: rank r's are spread evenly over its memory nodes. `placement` is the
 * configuration that placed them (decode's); NULL: `c` itself. Every rank is given the
 * share of the largest. ERR_ARG: a configuration of another machine, or a workload without
 * weight. */
MUST int simulate_seconds(const struct simulate_machine *s, const struct topo_config *c,
                          const struct topo_config *placement,
                          const struct simulate_workload *workload, double *seconds);
/* One measurement: the same with noise, which follows from `seed`, the configuration and
 * `repeat` alone. */
MUST int simulate_measure(const struct simulate_machine *s, const struct topo_config *c,
                          const struct topo_config *placement,
                          const struct simulate_workload *workload, uint64_t seed,
                          int repeat, double *seconds);

/* Static work over a list of PUs (indices into machine->pus) that each read the same local
 * bytes: n * min(rate), the figure that STREAM prints, GB/s. ERR_ARG: none, one that the
 * machine lacks, or one twice. */
MUST int simulate_stream_gbps(const struct simulate_machine *s, const int *pus, int n_pus,
                              double *gbps);

/* machines/NAME.json or any path to such a file (with a '/' or ending in .json): opens the
 * visible machine, named after the file, and the path of its parameters, params/NAME.json beside
 * it ("" when it has none). `dir`: where the shipped ones lie.
 * ERR_NOTFOUND names the nearest; ERR_FORMAT the file and key; ERR_LIMIT: a path of n
 * bytes or more. */
MUST int simulate_named_machine_open(struct topo_machine **out, const char *name,
                                     const char *dir, char *params_path, size_t n);
/* NULL-terminated, sorted; lent until the next call by this thread. */
MUST int simulate_named_machines(const char *dir, const char *const **names);

#endif
