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

/* Ranges of the numbers of every core, node and link; they span the machines that are described in
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

const char *const simulate_hidden_names[] = {"tiled",  "untiled", "unequal",
                                             "nested", "crossed", "slow_node",
                                             "links",  "noisy",   NULL};

/* A number from 2 to n / 2 that divides n; 0: there is none. */
static int proper_divisor(struct rng *r, int n)
{
    int sizes[16], n_sizes = 0;

    for (int c = 2; c <= n / 2; c++)
        if (n % c == 0)
            sizes[n_sizes++] = c;
    return n_sizes ? one_of(r, sizes, n_sizes) : 0;
}

/* Ranges from which the domains of one level are drawn. */
struct draw {
    struct rng *r;
    int n_cores; /* of a memory node */
    double core_gbps, strength;
};

static struct simulate_bandwidth_domain domain_of(const struct draw *d, double n_cores)
{
    return (struct simulate_bandwidth_domain){.name = "hidden",
                                              .of = (int)n_cores,
                                              .stride = 1,
                                              .gbps = n_cores * d->core_gbps *
                                                      (1 - d->strength)};
}

static int draw_tiled(struct simulate_bandwidth_domain *out, const struct draw *d)
{
    out[0] = domain_of(d, proper_divisor(d->r, d->n_cores));
    if (rng_below(d->r, 2))
        out[0].stride = d->n_cores / out[0].of;
    return 1;
}

static int draw_untiled(struct simulate_bandwidth_domain *out, const struct draw *d)
{
    int of;

    do
        of = 3 + (int)rng_below(d->r, (uint64_t)d->n_cores / 2 - 2);
    while (d->n_cores % of == 0);
    out[0] = domain_of(d, of);
    out[0].sizes[0] = of;
    out[0].stride = 1 + (int)rng_below(d->r, 2);
    return 1;
}

static int draw_unequal(struct simulate_bandwidth_domain *out, const struct draw *d)
{
    int small = 2 + (int)rng_below(d->r, (uint64_t)d->n_cores / 4 - 1);
    int large = small + 1 + (int)rng_below(d->r, (uint64_t)(d->n_cores / 2 - small));
    bool small_first = rng_below(d->r, 2);

    out[0] = domain_of(d, (small + large) / 2.0);
    out[0].sizes[0] = small_first ? small : large;
    out[0].sizes[1] = small_first ? large : small;
    return 1;
}

static int draw_nested(struct simulate_bandwidth_domain *out, const struct draw *d)
{
    int of, more;

    do {
        of = proper_divisor(d->r, d->n_cores);
        more = proper_divisor(d->r, d->n_cores / of);
    } while (!more);
    out[0] = domain_of(d, of);
    if (rng_below(d->r, 2))
        out[0].stride = d->n_cores / of;
    out[1] = domain_of(d, more);
    out[1].gbps = more * out[0].gbps * (1 - d->strength);
    return 2;
}

static int draw_crossed(struct simulate_bandwidth_domain *out, const struct draw *d)
{
    out[0] = domain_of(d, proper_divisor(d->r, d->n_cores));
    out[1] = domain_of(d, proper_divisor(d->r, d->n_cores));
    out[1].stride = d->n_cores / out[1].of;
    out[1].of_cores = true;
    return 2;
}

static int (*const draw_domains[SIMULATE_N_HIDDEN])(struct simulate_bandwidth_domain *out,
                                                    const struct draw *d) = {
    [SIMULATE_TILED] = draw_tiled,     [SIMULATE_UNTILED] = draw_untiled,
    [SIMULATE_UNEQUAL] = draw_unequal, [SIMULATE_NESTED] = draw_nested,
    [SIMULATE_CROSSED] = draw_crossed, [SIMULATE_NOISY] = draw_tiled};

static void draw_clusters(struct simulate_machine_params *t, struct rng *r, int n_cores,
                          const struct simulate_random_opts *o)
{
    struct draw d = {r, n_cores, t->core_gbps, o->strength};
    int n = draw_domains[o->kind](t->domains, &d);

    t->kappa = between(r, 0, 0.6) * o->strength;
    t->n_domains = o->strength > 0 ? n : 0;
    if (o->kind == SIMULATE_NOISY) {
        t->noise_frac = between(r, 0.005, 0.06);
        t->spike_frac = between(r, 0.05, 0.5);
        t->spike_chance = between(r, 0, 0.1);
    }
}

/* One direction loses `strength` of its bandwidth and every other one at most half as much, so
 * that no draw is symmetric. */
static void draw_links(struct simulate_machine_params *t, struct rng *r, int n_packages,
                       double strength)
{
    int worst = (int)rng_below(r, (uint64_t)(n_packages * (n_packages - 1)));

    for (int to = 0; to < n_packages; to++)
        for (int from = 0; from < n_packages; from++) {
            if (to == from)
                continue;
            t->links[t->n_links] = (struct simulate_link){
                to, from, 1 - strength * (t->n_links == worst ? 1 : between(r, 0, 0.5))};
            t->n_links++;
        }
}

static void draw_hidden(struct simulate_machine_params *t, struct rng *r,
                        const int shape[3], const struct simulate_random_opts *o)
{
    int n_nodes = shape[0] * shape[1], slow;

    if (draw_domains[o->kind]) {
        draw_clusters(t, r, shape[2], o);
    } else if (o->kind == SIMULATE_SLOW_NODE) {
        slow = (int)rng_below(r, (uint64_t)n_nodes);
        t->node_factor[slow] = 1 - o->strength;
    } else {
        draw_links(t, r, shape[0], o->strength);
    }
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
    if (!(o->strength >= 0 && o->strength <= 0.9) || o->kind >= SIMULATE_N_HIDDEN)
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
    if (o->kind == SIMULATE_LINKS)
        n_packages = 2;
    if (o->kind == SIMULATE_SLOW_NODE && n_packages * n_nodes == 1)
        n_nodes = 2;
    snprintf(spec, sizeof(spec), "synthetic:package:%d numa:%d core:%d pu:%d", n_packages,
             n_nodes, n_cores, n_smt);
    *params = (struct simulate_machine_params){0};
    snprintf(params->name, sizeof(params->name), "random %llu",
             (unsigned long long)o->seed);
    draw_rates(params, &r, n_cores);
    draw_hidden(params, &r, (const int[3]){n_packages, n_nodes, n_cores}, o);
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
