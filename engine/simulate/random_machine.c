#include "simulate/random_machine.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"

static double between(struct rng *r, double low, double high)
{
    return low + (high - low) * rng_f64(r);
}

static int one_of(struct rng *r, const int *v, int n)
{
    return v[rng_below(r, (uint64_t)n)];
}

/* What every core, node and link does; ranges span the machines that are described in
 * machines/params/. */
static void draw_rates(struct simulate_machine_params *t, struct rng *r, int n_cores)
{
    t->core_gbps = between(r, 8, 16);
    t->sharpness = between(r, 1.3, 4);
    /* A node feeds a third to four fifths of its cores: decode need not use them all. */
    t->node_gbps = t->core_gbps * n_cores * between(r, 0.35, 0.8);
    for (int i = 0; i < SIMULATE_NODES_MAX; i++)
        t->node_factor[i] = 1;
    t->contention_from = (int)(n_cores * between(r, 0.3, 0.75));
    t->contention_per_core = between(r, 0.05, 0.4) / (n_cores - t->contention_from);
    t->same_package_factor = between(r, 0.7, 0.95);
    t->other_package_factor = between(r, 0.45, 0.7);
    t->link_gbps = between(r, 30, 90);
    t->latency_ns = between(r, 80, 140);
    t->mlp = between(r, 6, 12);
    t->core_gflops = between(r, 40, 120);
    t->smt_factor = 0.55;
    t->sync_ns[0] = between(r, 25, 40);
    for (int i = 1; i < 4; i++)
        t->sync_ns[i] = t->sync_ns[i - 1] * between(r, 1.2, 2.2);
    t->noise_frac = 0.015;
    t->spike_frac = 0.05;
    t->spike_chance = 0.01;
}

static void draw_cluster(struct simulate_machine_params *t, struct rng *r, int n_cores,
                         double strength)
{
    int sizes[16], n = 0, of;

    for (int c = 2; c <= n_cores / 2; c++)
        if (n_cores % c == 0)
            sizes[n++] = c;
    of = one_of(r, sizes, n);
    t->domains[0] =
        (struct simulate_bandwidth_domain){.name = "hidden",
                                           .of = of,
                                           .stride = rng_below(r, 2) ? n_cores / of : 1,
                                           .gbps = of * t->core_gbps * (1 - strength)};
    t->kappa = between(r, 0, 0.6) * strength;
    t->n_domains = strength > 0;
}

int simulate_random_machine(struct topo_machine **m,
                            struct simulate_machine_params *params,
                            const struct simulate_random_opts *o)
{
    static const int cores[] = {8, 12, 16, 24, 32};
    int n_cores, n_packages, n_nodes, n_smt, n = 0;
    char spec[96];
    struct rng r;

    *m = NULL;
    if (!(o->strength >= 0 && o->strength <= 0.9))
        return err_set(ERR_ARG, "a hidden structure of strength %g: expected 0 to 0.9",
                       o->strength);
    while (n < 5 && (!o->max_cores || cores[n] <= o->max_cores))
        n++;
    if (!n)
        return err_set(ERR_ARG,
                       "a random machine of at most %d cores a node: expected "
                       "8 or more",
                       o->max_cores);
    rng_init(&r, o->seed, "topo_random_machine");
    n_cores = one_of(&r, cores, n);
    n_packages = 1 + (int)rng_below(&r, 2);
    n_nodes = 1 + (int)rng_below(&r, 2);
    n_smt = rng_below(&r, 4) ? 1 : 2;
    snprintf(spec, sizeof(spec), "synthetic:package:%d numa:%d core:%d pu:%d", n_packages,
             n_nodes, n_cores, n_smt);
    *params = (struct simulate_machine_params){0};
    snprintf(params->name, sizeof(params->name), "random %llu",
             (unsigned long long)o->seed);
    draw_rates(params, &r, n_cores);
    draw_cluster(params, &r, n_cores, o->strength);
    return topo_machine_open(m, spec);
}

void simulate_random_workload(struct simulate_workload *out, uint64_t seed)
{
    struct simulate_step *w = &out->v[0];
    struct rng r;
    double n_parameters, n_layers;

    rng_init(&r, seed, "topo_random_works");
    n_parameters = between(&r, 4, 13) * 1e9;
    n_layers = (double)(30 + rng_below(&r, 11));
    *out = (struct simulate_workload){.phase = TOPO_DECODE, .n = 1};
    w->weight = 1;
    w->flop = 2 * n_parameters;
    w->weight_bytes = 2 * n_parameters; /* 16 bits each */
    w->kv_bytes = between(&r, 0, 0.1) * w->weight_bytes;
    w->gather_bytes = between(&r, 0, 0.15) * w->weight_bytes;
    w->attention_frac = between(&r, 0.25, 0.4);
    w->n_barriers = 5 * n_layers;
    w->n_allreduces = 2 * n_layers;
    w->allreduce_bytes = 8192;
}
