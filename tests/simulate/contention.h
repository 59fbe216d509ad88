/* tests/simulate/contention.h - opening simulated machines, for the tests of the simulator. */
#ifndef TESTS_TOPO_CONTENTION_H
#define TESTS_TOPO_CONTENTION_H

#include <math.h>

#include "tests/support/test.h"
#include "simulate/contention.h"

#define MACHINES "engine/simulate/machines"

/* Without hidden structure, limits or remote cost; one thread reads 10 GB/s. */
static inline struct simulate_machine_params plain_params(void)
{
    struct simulate_machine_params t = {.name = "plain",
                                        .core_gbps = 10,
                                        .sharpness = 4,
                                        .node_gbps = INFINITY,
                                        .same_package_factor = 1,
                                        .other_package_factor = 1,
                                        .link_gbps = INFINITY,
                                        .latency_ns = 100,
                                        .mlp = 10,
                                        .core_gflops = 50,
                                        .smt_factor = 0.6};

    for (int i = 0; i < SIMULATE_NODES_MAX; i++)
        t.node_factor[i] = 1;
    return t;
}

static inline struct simulate_bandwidth_domain domain(const char *name, int of,
                                                      int stride, double gbps)
{
    struct simulate_bandwidth_domain d = {.of = of, .stride = stride, .gbps = gbps};

    snprintf(d.name, sizeof(d.name), "%s", name);
    return d;
}

static inline void open_shipped(const char *name, struct topo_machine **m,
                                struct simulate_machine **s)
{
    char params[512];

    assert_ok(simulate_named_machine_open(m, name, MACHINES, params, sizeof(params)));
    assert_ok(simulate_machine_open(s, *m, params));
}

static inline void open_plain(const char *spec, const struct simulate_machine_params *t,
                              struct topo_machine **m, struct simulate_machine **s)
{
    assert_ok(topo_machine_open(m, spec));
    assert_ok(simulate_machine_new(s, *m, t));
}

static inline double stream(const struct simulate_machine *s, const int *pus, int n)
{
    double gbps;

    assert_ok(simulate_stream_gbps(s, pus, n, &gbps));
    return gbps;
}

static inline void assert_near(double got, double want, double rel, const char *what)
{
    if (!(fabs(got / want - 1) <= rel))
        fail_msg("%s: got %.9g, wanted %.9g within %g %%", what, got, want, rel * 100);
}

#endif
