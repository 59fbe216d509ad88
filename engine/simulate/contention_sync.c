/* How long threads and ranks wait for each other: hand-offs by the level they cross. */
#include "simulate/contention_parts.h"

#include <math.h>
#include <string.h>

enum { CLUSTER, NODE, PACKAGE, BEYOND, N_LEVELS };

/* Of one rank at a time: when a thing was last seen, and how many are below it. */
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
