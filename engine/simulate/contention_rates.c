#include "simulate/contention_rates.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Every thread goes round its cycle: a number of bytes from each memory node its rank's
 * weights lie on. Alone, a cycle takes the sum over the nodes of bytes / (b1 * lambda),
 * which gives the demand it puts on every domain, link and node it passes. A shared thing
 * that is asked for more than it has slows all its users by the same factor, so demand is
 * shared in proportion. On its way out of the core a thread passes all its domains and pays
 * their factors one after the other; links and nodes lie side by side, and a thread runs
 * at the rate of the tightest one it visits, since it queues there and nowhere else.
 * With all bytes local this is the textbook hierarchy of smooth minima. */

#define LINE_BYTES 64.0

/* Readers beyond the fit's range lose no more than this. */
#define CONTENTION_FLOOR 0.1

/* Threads of one rank on one node; they differ only by the domains they pass. */
struct part {
    int rank, node;
    double cycle;   /* time of one alone, 1 if all bytes were local */
    double rate;    /* of all its threads behind their domains, GB/s */
    double slowest; /* ... of the slowest one */
    double cores;   /* occupied; siblings count as parts of one */
    double gather;  /* of all its threads, local and unloaded, GB/s */
    double gather_slowest;
    double rate_scale; /* factor of links, then also of nodes */
};

/* One block of memory; the arrays have an element for each CPU of the machine. */
struct scratch {
    double *demand, *domain_factor; /* of each domain of one kind */
    double *core_demand;            /* of each core, after the domains so far */
    double *core_factor;            /* the part of its demand that they let through */
    uint64_t *placed;               /* memory nodes of each rank of the placement */
    struct part *parts;
    int *n_on_core;
    int *n_in_domain; /* cores of each domain of the first kind */
    int n_parts;
    double link[SIMULATE_NODES_MAX]
               [SIMULATE_NODES_MAX]; /* demand, to a package from another */
    double node[SIMULATE_NODES_MAX], readers[SIMULATE_NODES_MAX],
        rate_scale[SIMULATE_NODES_MAX];
    double queue[SIMULATE_NODES_MAX];
};

/* Where the bytes of a rank are. */
struct spread {
    int rank, n;
    int node[SIMULATE_NODES_MAX];
    double frac[SIMULATE_NODES_MAX];
};

double simulate_smin(double a, double b, double s)
{
    double lo = fmin(a, b), hi = fmax(a, b);

    if (lo <= 0 || isinf(hi))
        return fmax(lo, 0);
    return lo * pow(1 + pow(lo / hi, s), -1 / s);
}

double simulate_loaded_latency(double load_frac)
{
    return 1 + 0.49 * load_frac + 0.41 * pow(load_frac, 8);
}

double simulate_lambda(const struct simulate_machine *s, int node, int from)
{
    if (node == from)
        return 1;
    return s->node_package[node] == s->node_package[from]
               ? s->params.same_package_factor
               : s->params.other_package_factor;
}

/* ---- where bytes lie ---- */

static void find_placed(const struct simulate_machine *s, const struct simulate_layout *l,
                        uint64_t *placed)
{
    const int *pu = l->pus;

    for (int r = 0; r < l->n_ranks; r++) {
        placed[r] = 0;
        for (int i = 0; i < l->n_threads; i++)
            placed[r] |= UINT64_C(1) << s->machine->pus[*pu++].node;
    }
}

/* Rank r of R owns the units [r/R, (r+1)/R); where those of the placement's ranks overlap
 * them, they lie on that rank's nodes, evenly. */
static void spread_of(const struct scratch *k, int rank, int n_ranks, int n_placed,
                      struct spread *out)
{
    double at[SIMULATE_NODES_MAX] = {0};
    int64_t begin = (int64_t)rank * n_placed, end = begin + n_placed; /* of R * R' */
    uint64_t all = 0;

    out->rank = rank;
    out->n = 0;
    for (int64_t p = begin / n_ranks; p * n_ranks < end; p++) {
        int64_t lo = p * n_ranks > begin ? p * n_ranks : begin;
        int64_t hi = (p + 1) * n_ranks < end ? (p + 1) * n_ranks : end;
        uint64_t nodes = k->placed[p];
        double each = (double)(hi - lo) / n_placed / __builtin_popcountll(nodes);

        all |= nodes;
        for (; nodes; nodes &= nodes - 1)
            at[__builtin_ctzll(nodes)] += each;
    }
    for (; all; all &= all - 1) {
        out->node[out->n] = __builtin_ctzll(all);
        out->frac[out->n] = at[out->node[out->n]];
        out->n++;
    }
}

/* ---- threads to parts ---- */

static void count_cores(const struct simulate_machine *s, const struct simulate_layout *l,
                        struct scratch *k)
{
    int n = l->n_ranks * l->n_threads;

    memset(k->n_on_core, 0, (size_t)s->n_cores * sizeof(int));
    if (s->params.n_domains)
        memset(k->n_in_domain, 0, (size_t)s->domain_count[0] * sizeof(int));
    for (int i = 0; i < n; i++) {
        int core = s->core[l->pus[i]];

        if (k->n_on_core[core]++ == 0 && s->params.n_domains)
            k->n_in_domain[s->domain_of[0][core]]++;
    }
}

static double cycle_of(const struct simulate_machine *s, const struct spread *spread,
                       int node)
{
    double cycle = 0;

    for (int i = 0; i < spread->n; i++)
        cycle += spread->frac[i] / simulate_lambda(s, node, spread->node[i]);
    return cycle;
}

/* Runs of threads of one rank on one node, and what each core asks of its domain. */
static void make_parts(const struct simulate_machine *s, const struct simulate_layout *l,
                       int n_placed, struct scratch *k)
{
    const int *pu = l->pus;
    struct spread spread;

    k->n_parts = 0;
    memset(k->core_demand, 0, (size_t)s->n_cores * sizeof(double));
    for (int r = 0; r < l->n_ranks; r++) {
        struct part *part = NULL;

        spread_of(k, r, l->n_ranks, n_placed, &spread);
        for (int i = 0; i < l->n_threads; i++, pu++) {
            int core = s->core[*pu], node = s->core_node[core];

            if (!part || part->node != node) {
                part = &k->parts[k->n_parts++];
                *part = (struct part){.rank = r, .node = node, .rate_scale = 1};
                part->cycle = cycle_of(s, &spread, node);
            }
            k->core_demand[core] +=
                s->params.core_gbps / part->cycle / k->n_on_core[core];
        }
    }
}

/* ---- bandwidth domains ---- */

/* From the cores up: each kind of domain lets through a part of what those before it did. */
static void pass_domains(const struct simulate_machine *s, struct scratch *k)
{
    const struct simulate_machine_params *t = &s->params;

    for (int i = 0; i < s->n_cores; i++)
        k->core_factor[i] = 1;
    for (int c = 0; c < t->n_domains; c++) {
        const int *domain = s->domain_of[c];
        double last_in = -1, last = 1;

        memset(k->demand, 0, (size_t)s->domain_count[c] * sizeof(double));
        for (int i = 0; i < s->n_cores; i++)
            k->demand[domain[i]] += k->core_demand[i];
        for (int d = 0; d < s->domain_count[c]; d++) {
            double in = k->demand[d];

            if (in != last_in) { /* mostly equal: symmetric layouts */
                last =
                    in > 0 ? simulate_smin(in, t->domains[c].gbps, t->sharpness) / in : 1;
                last_in = in;
            }
            k->domain_factor[d] = last;
        }
        for (int i = 0; i < s->n_cores; i++) {
            k->core_demand[i] *= k->domain_factor[domain[i]];
            k->core_factor[i] *= k->domain_factor[domain[i]];
        }
    }
}

static void sum_parts(const struct simulate_machine *s, const struct simulate_layout *l,
                      struct scratch *k)
{
    const struct simulate_machine_params *t = &s->params;
    double gather = t->mlp * LINE_BYTES / t->latency_ns;
    const int *pu = l->pus;
    struct part *part = NULL;
    int rank = -1, n_parts = 0;

    for (int i = 0; i < l->n_ranks * l->n_threads; i++, pu++) {
        int core = s->core[*pu], domain = t->n_domains ? s->domain_of[0][core] : 0;
        double share = 1.0 / k->n_on_core[core], x, g;

        if (!part || i / l->n_threads != rank || part->node != s->core_node[core]) {
            rank = i / l->n_threads;
            part = &k->parts[n_parts++]; /* as make_parts() began them */
            part->slowest = part->gather_slowest = INFINITY;
        }
        x = t->core_gbps / part->cycle * share * k->core_factor[core];
        g = gather * share /
            (1 + t->kappa * (t->n_domains ? k->n_in_domain[domain] - 1 : 0));
        part->rate += x;
        part->slowest = fmin(part->slowest, x);
        part->cores += share;
        part->gather += g;
        part->gather_slowest = fmin(part->gather_slowest, g);
    }
}

/* ---- links and nodes ---- */

typedef void (*part_fn)(const struct simulate_machine *s, struct scratch *k,
                        struct part *part, const struct spread *spread);

static void each_part(const struct simulate_machine *s, const struct simulate_layout *l,
                      int n_placed, struct scratch *k, part_fn fn)
{
    struct spread spread = {.rank = -1};

    for (int i = 0; i < k->n_parts; i++) {
        if (k->parts[i].rank != spread.rank)
            spread_of(k, k->parts[i].rank, l->n_ranks, n_placed, &spread);
        fn(s, k, &k->parts[i], &spread);
    }
}

static double *link_between(const struct simulate_machine *s, struct scratch *k, int to,
                            int from)
{
    return &k->link[s->node_package[to]][s->node_package[from]];
}

/* The bandwidth at which package `to` can read from package `from`. */
static double link_gbps(const struct simulate_machine *s, int to, int from)
{
    const struct simulate_machine_params *t = &s->params;
    double gbps = t->link_gbps;

    for (int i = 0; i < t->n_links; i++)
        if (t->links[i].to == to && t->links[i].from == from)
            gbps *= t->links[i].factor;
    return gbps;
}

static void load_links(const struct simulate_machine *s, struct scratch *k,
                       struct part *part, const struct spread *spread)
{
    for (int i = 0; i < spread->n; i++)
        *link_between(s, k, part->node, spread->node[i]) += part->rate * spread->frac[i];
}

static void pace_of_links(const struct simulate_machine *s, struct scratch *k,
                          struct part *part, const struct spread *spread)
{
    int to = s->node_package[part->node];

    for (int i = 0; i < spread->n; i++) {
        int from = s->node_package[spread->node[i]];
        double asked = *link_between(s, k, part->node, spread->node[i]);
        double gbps = link_gbps(s, to, from);

        if (to != from && asked * part->rate_scale > gbps)
            part->rate_scale = gbps / asked;
    }
}

static void load_nodes(const struct simulate_machine *s, struct scratch *k,
                       struct part *part, const struct spread *spread)
{
    for (int i = 0; i < spread->n; i++) {
        int from = spread->node[i];
        double lambda = simulate_lambda(s, part->node, from);

        k->node[from] += part->rate * part->rate_scale * spread->frac[i];
        k->readers[from] += part->cores * spread->frac[i] / lambda / part->cycle;
    }
}

static double node_gbps(const struct simulate_machine *s, int node)
{
    return s->params.node_gbps * s->params.node_factor[node];
}

static void rate_scales_of_nodes(const struct simulate_machine *s, struct scratch *k)
{
    const struct simulate_machine_params *t = &s->params;

    for (int i = 0; i < s->machine->n_nodes; i++) {
        double asked = k->node[i];
        double lost =
            fmax(0, k->readers[i] - t->contention_from) * t->contention_per_core;

        k->rate_scale[i] = asked > 0
                               ? simulate_smin(asked, node_gbps(s, i), t->sharpness) /
                                     asked * fmax(CONTENTION_FLOOR, 1 - lost)
                               : 1;
    }
}

static void rates_of_nodes(const struct simulate_machine *s, struct scratch *k,
                           struct part *part, const struct spread *spread)
{
    double rate_scale = 1;

    (void)s;
    for (int i = 0; i < spread->n; i++)
        rate_scale = fmin(rate_scale, k->rate_scale[spread->node[i]]);
    part->rate_scale *= rate_scale;
}

/* ---- gathered reads ---- */

/* Utilisation that the gathering threads themselves make, before they wait. */
static void load_gather(const struct simulate_machine *s, struct scratch *k,
                        struct part *part, const struct spread *spread)
{
    for (int i = 0; i < spread->n; i++)
        k->queue[spread->node[i]] +=
            part->gather / part->cycle * spread->frac[i] / node_gbps(s, spread->node[i]);
}

static void slow_gather(const struct simulate_machine *s, struct scratch *k,
                        struct part *part, const struct spread *spread)
{
    double wait = 0; /* relative to a local, unloaded read */

    for (int i = 0; i < spread->n; i++) {
        int from = spread->node[i];

        wait += spread->frac[i] * simulate_loaded_latency(fmin(1, k->queue[from])) /
                simulate_lambda(s, part->node, from);
    }
    part->gather_slowest /= wait;
}

/* ---- all together ---- */

static void pass_memory(const struct simulate_machine *s, const struct simulate_layout *l,
                        int n_placed, struct scratch *k)
{
    size_t nodes = (size_t)s->machine->n_nodes * sizeof(double);

    for (int i = 0; i < s->n_packages; i++)
        memset(k->link[i], 0, (size_t)s->n_packages * sizeof(double));
    memset(k->node, 0, nodes);
    memset(k->readers, 0, nodes);
    memset(k->queue, 0, nodes);
    if (s->n_packages > 1) {
        each_part(s, l, n_placed, k, load_links);
        each_part(s, l, n_placed, k, pace_of_links);
    }
    each_part(s, l, n_placed, k, load_nodes);
    rate_scales_of_nodes(s, k);
    each_part(s, l, n_placed, k, rates_of_nodes);
    each_part(s, l, n_placed, k, load_gather);
    each_part(s, l, n_placed, k, slow_gather);
}

/* `smt_factor` is of two siblings; of more, the core gives no more than of two. */
static double slowest_compute(const struct simulate_machine *s, const struct scratch *k)
{
    int most = 1;

    for (int i = 0; i < s->n_cores; i++)
        most = k->n_on_core[i] > most ? k->n_on_core[i] : most;
    return s->params.core_gflops * (most > 1 ? s->params.smt_factor * 2 / most : 1);
}

/* On the heap, since a large machine takes hundreds of kilobytes. */
static struct scratch *scratch_new(const struct simulate_machine *s)
{
    size_t n = (size_t)s->machine->n_pus;
    size_t one =
        sizeof(struct part) + sizeof(uint64_t) + 2 * sizeof(int) + 4 * sizeof(double);
    struct scratch *k = mem_new(MEM_OTHER, 1, sizeof(*k) + n * one);

    if (!k)
        return NULL;
    k->parts = (struct part *)(k + 1);
    k->placed = (uint64_t *)(k->parts + n);
    k->demand = (double *)(k->placed + n);
    k->domain_factor = k->demand + n;
    k->core_demand = k->domain_factor + n;
    k->core_factor = k->core_demand + n;
    k->n_on_core = (int *)(k->core_factor + n);
    k->n_in_domain = k->n_on_core + n;
    return k;
}

int simulate_rates(const struct simulate_machine *s, const struct simulate_layout *l,
                   struct simulate_rates *out)
{
    const struct simulate_layout *placement = l->placement ? l->placement : l;
    struct scratch *k = scratch_new(s);

    if (!k)
        return ERR_NOMEM;
    find_placed(s, placement, k->placed);
    count_cores(s, l, k);
    make_parts(s, l, placement->n_ranks, k);
    pass_domains(s, k);
    sum_parts(s, l, k);
    pass_memory(s, l, placement->n_ranks, k);

    out->read_gbps = out->gather_gbps = INFINITY;
    for (int i = 0; i < k->n_parts; i++) {
        double x = k->parts[i].slowest * k->parts[i].rate_scale;

        out->read_gbps = fmin(out->read_gbps, x);
        out->gather_gbps = fmin(out->gather_gbps, fmin(x, k->parts[i].gather_slowest));
    }
    out->gflops = slowest_compute(s, k);
    mem_free(k);
    return OK;
}

/* ---- how long threads and ranks wait for each other: hand-offs by the level they cross ---- */

enum { CLUSTER, NODE, PACKAGE, BEYOND, N_LEVELS };

/* For one rank at a time: when a thing was last seen, and how many are below it. */
struct tally {
    int16_t seen_by, n; /* small, since all of them are on the stack */
};
_Static_assert(SIMULATE_PUS_MAX <= INT16_MAX, "ranks and CPUs fit");

struct tallies {
    struct tally cluster[SIMULATE_PUS_MAX];
    struct tally node[SIMULATE_NODES_MAX], package[SIMULATE_NODES_MAX];
};

static int cluster_of(const struct simulate_machine *s, int core)
{
    return s->params.n_domains ? s->domain_of[0][core] : core;
}

/* One more below this thing; true when it is the first of this rank. */
static bool add(struct tally *t, int rank, int *fan_in)
{
    bool first = t->seen_by != rank;

    t->seen_by = (int16_t)rank;
    t->n = first ? 1 : (int16_t)(t->n + 1);
    *fan_in = t->n > *fan_in ? t->n : *fan_in;
    return first;
}

static double barrier_of(const struct simulate_machine *s, const int *pus, int n,
                         int rank, struct tallies *k)
{
    int fan_in[N_LEVELS] = {0}, top = CLUSTER;
    double ns = 0;

    for (int i = 0; i < n; i++) {
        int core = s->core[pus[i]], node = s->core_node[core];
        int package = s->node_package[node];

        if (add(&k->cluster[cluster_of(s, core)], rank, &fan_in[CLUSTER]) &&
            add(&k->node[node], rank, &fan_in[NODE]) &&
            add(&k->package[package], rank, &fan_in[PACKAGE]))
            fan_in[BEYOND]++;
    }
    for (int l = CLUSTER; l < N_LEVELS; l++) {
        ns += (fan_in[l] - 1) * s->params.sync_ns[l];
        top = fan_in[l] > 1 ? l : top;
    }
    /* gathered; the release crosses the widest level once, readers of it at a time */
    return n > 1 ? ns + s->params.sync_ns[top] : 0;
}

double simulate_barrier_ns(const struct simulate_machine *s,
                           const struct simulate_layout *l)
{
    struct tallies k;
    double worst = 0;

    /* -1, no rank: every byte set */
    memset(k.cluster, 0xff, (size_t)s->n_cores * sizeof(k.cluster[0]));
    memset(k.node, 0xff, sizeof(k.node));
    memset(k.package, 0xff, sizeof(k.package));
    for (int r = 0; r < l->n_ranks; r++)
        worst = fmax(worst, barrier_of(s, l->pus + (size_t)r * (size_t)l->n_threads,
                                       l->n_threads, r, &k));
    return worst;
}

static int level_between(const struct simulate_machine *s, int pu, int other)
{
    int a = s->core[pu], b = s->core[other];
    int na = s->core_node[a], nb = s->core_node[b];

    if (s->node_package[na] != s->node_package[nb])
        return BEYOND;
    if (na != nb)
        return PACKAGE;
    return cluster_of(s, a) == cluster_of(s, b) ? CLUSTER : NODE;
}

void simulate_neighbours(const struct simulate_machine *s,
                         const struct simulate_layout *l, double *hand_off_ns,
                         double *lambda)
{
    *hand_off_ns = 0;
    *lambda = 1;
    for (int r = 0; r < l->n_ranks; r++) {
        int pu = l->pus[r * l->n_threads];
        int next = l->pus[(r + 1) % l->n_ranks * l->n_threads];

        *hand_off_ns = fmax(*hand_off_ns, s->params.sync_ns[level_between(s, pu, next)]);
        *lambda = fmin(*lambda, simulate_lambda(s, s->core_node[s->core[pu]],
                                                s->core_node[s->core[next]]));
    }
}
