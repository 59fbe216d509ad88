#include "simulate/any_cores.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

/* Each memory node may have another number of ranks, 0 to a most that keeps the number of such
 * mixes in bounds: 16 on two nodes, 3 on four. Above eight nodes all have the same number. */
#define MIXES_MAX   300
#define SWAP_ROUNDS 8
#define GAIN_MIN    1e-9 /* a smaller one is rounding */

struct any {
    const struct topo_machine *m;
    const struct topo_limits *limits;
    simulate_price_fn price;
    void *ctx;
    int n_nodes, n_most; /* memory nodes; the most cores of one */
    int *n_cores;        /* [n_nodes] */
    int *ranks;          /* [n_nodes] of the plan that is tried */
    int *
        order; /* [n_nodes][m->n_pus] a PU of each core of a node, the first k for k cores */
    int *pus; /* [m->n_pus] the plan that is tried */
    struct simulate_best best;
};

/* Price the first n_ranks * n_threads of `pus`, and keep the plan if it is the fastest.
 * INFINITY: it cannot be run. */
MUST static int try_plan(struct any *a, const int *pus, int n_ranks, int n_threads,
                         double *seconds)
{
    struct topo_tree *t;
    struct topo_config c;
    int rc = topo_tree_of_ranks(&t, a->m, pus, n_ranks, n_threads);

    *seconds = INFINITY;
    if (rc == OK)
        rc = topo_config_cut(&c, t, 1, a->limits);
    if (rc == OK)
        rc = a->price(a->ctx, &c, 0, seconds);
    a->best.n_configs += rc == OK;
    if (rc == ERR_UNSUPPORTED) {
        *seconds = INFINITY;
        rc = OK;
    } else if (rc == OK && *seconds < a->best.seconds * (1 - GAIN_MIN)) {
        mem_free(a->best.tree);
        a->best.tree = t;
        a->best.config = c;
        a->best.seconds = *seconds;
        return OK;
    }
    mem_free(t);
    return rc;
}

static int *order_of(const struct any *a, int node)
{
    return a->order + (size_t)node * (size_t)a->m->n_pus;
}

/* One PU of each core: decode reads memory, and siblings share their core's reads. */
static void list_cores(struct any *a)
{
    for (int i = 0; i < a->m->n_pus; i++) {
        const struct topo_pu *pu = &a->m->pus[i];
        int *of_node = order_of(a, pu->node);
        bool known = false;

        for (int k = 0; k < a->n_cores[pu->node]; k++)
            known |= pu->core >= 0 && a->m->pus[of_node[k]].core == pu->core;
        if (!known)
            of_node[a->n_cores[pu->node]++] = i;
        if (a->n_cores[pu->node] > a->n_most)
            a->n_most = a->n_cores[pu->node];
    }
}

/* Order the cores of a node so that each next one makes the fastest rank with those before. */
MUST static int order_node(struct any *a, int node)
{
    int *v = order_of(a, node);

    for (int k = 0; k < a->n_cores[node]; k++) {
        double best_s = INFINITY, seconds;
        int best = k, swap;

        for (int i = k; i < a->n_cores[node]; i++) {
            swap = v[k], v[k] = v[i], v[i] = swap;
            TRY(try_plan(a, v, 1, k + 1, &seconds));
            swap = v[k], v[k] = v[i], v[i] = swap;
            if (seconds < best_s * (1 - GAIN_MIN))
                best_s = seconds, best = i;
        }
        swap = v[k], v[k] = v[best], v[best] = swap;
    }
    return OK;
}

/* Append a node's best n cores, in their order on the machine, so that ranks take neighbours. */
static int append(struct any *a, int at, int node, int n)
{
    const int *v = order_of(a, node);

    for (int k = 0; k < n; k++) {
        int i = at + k;

        for (; i > at && a->pus[i - 1] > v[k]; i--)
            a->pus[i] = a->pus[i - 1];
        a->pus[i] = v[k];
    }
    return at + n;
}

/* Node i has ranks[i] ranks of n_threads; where no node has more than one, all cores as one
 * rank are a plan, too. */
MUST static int try_ranks(struct any *a, int n_threads)
{
    const int *ranks = a->ranks;
    int at = 0, n_ranks = 0, most = 0;
    double seconds;

    for (int node = 0; node < a->n_nodes; node++) {
        if (ranks[node] * n_threads > a->n_cores[node])
            return OK;
        at = append(a, at, node, ranks[node] * n_threads);
        n_ranks += ranks[node];
        most = ranks[node] > most ? ranks[node] : most;
    }
    if (!n_ranks)
        return OK;
    if (most == 1 && n_ranks > 1)
        TRY(try_plan(a, a->pus, 1, at, &seconds));
    return try_plan(a, a->pus, n_ranks, n_threads, &seconds);
}

MUST static int try_even(struct any *a)
{
    for (int r = 1; r <= a->n_most; r++)
        for (int n = 1; n * r <= a->n_most; n++) {
            for (int node = 0; node < a->n_nodes; node++)
                a->ranks[node] = r;
            TRY(try_ranks(a, n));
        }
    return OK;
}

MUST static int try_mixed(struct any *a)
{
    int n_each = (int)(pow(MIXES_MAX, 1.0 / a->n_nodes) + 1e-9), n_mixes = 1;

    if (n_each < 2)
        return OK;
    for (int node = 0; node < a->n_nodes; node++)
        n_mixes *= n_each;
    for (int mix = 1; mix < n_mixes; mix++) {
        for (int node = 0, rest = mix; node < a->n_nodes; node++, rest /= n_each)
            a->ranks[node] = rest % n_each;
        for (int n = 1; n <= a->n_most; n++)
            TRY(try_ranks(a, n));
    }
    return OK;
}

/* Exchange a core of the plan at `at` for an unused one of its node, where that helps. */
MUST static int swap_core(struct any *a, bool *used, int at)
{
    const struct topo_config *c = &a->best.config;
    int n = c->n_ranks * c->n_threads, own = c->tree->pus[at], node = a->m->pus[own].node;
    double seconds;

    memcpy(a->pus, c->tree->pus, (size_t)n * sizeof(*a->pus));
    for (int k = 0; k < a->n_cores[node]; k++) {
        int other = order_of(a, node)[k];
        double before = a->best.seconds;

        if (used[other])
            continue;
        a->pus[at] = other;
        TRY(try_plan(a, a->pus, c->n_ranks, c->n_threads, &seconds));
        if (a->best.seconds < before) {
            used[own] = false;
            used[other] = true;
            own = other;
        }
        a->pus[at] = own;
    }
    return OK;
}

MUST static int swap_cores(struct any *a)
{
    bool *used = mem_new(MEM_OTHER, (size_t)a->m->n_pus, sizeof(*used));
    double before = INFINITY;
    int rc = used ? OK : ERR_NOMEM;

    for (int i = 0; rc == OK && i < a->m->n_pus; i++) /* siblings are used together */
        for (int k = 0; k < a->best.config.tree->n_pus; k++) {
            const struct topo_pu *pu = &a->m->pus[a->best.config.tree->pus[k]];

            used[i] |=
                pu == &a->m->pus[i] || (pu->core >= 0 && pu->core == a->m->pus[i].core);
        }
    for (int r = 0; rc == OK && r < SWAP_ROUNDS && a->best.seconds < before; r++) {
        before = a->best.seconds;
        for (int i = 0; rc == OK && i < a->best.config.tree->n_pus; i++)
            rc = swap_core(a, used, i);
    }
    mem_free(used);
    return rc;
}

MUST static int open_any(struct any *a, const struct topo_config *start)
{
    size_t n_pus = (size_t)a->m->n_pus;

    a->n_nodes = a->m->n_nodes;
    a->n_cores = mem_new(MEM_OTHER, (size_t)a->n_nodes, sizeof(*a->n_cores));
    a->ranks = mem_new(MEM_OTHER, (size_t)a->n_nodes, sizeof(*a->ranks));
    a->order = mem_new(MEM_OTHER, (size_t)a->n_nodes * n_pus, sizeof(*a->order));
    a->pus = mem_new(MEM_OTHER, n_pus, sizeof(*a->pus));
    if (!a->n_cores || !a->ranks || !a->order || !a->pus)
        return ERR_NOMEM;
    TRY(topo_tree_copy(&a->best.tree, start->tree));
    a->best.config = *start;
    a->best.config.tree = a->best.tree;
    return a->price(a->ctx, start, 0, &a->best.seconds);
}

int simulate_any_cores(struct simulate_best *out, const struct topo_config *start,
                       const struct topo_limits *limits, simulate_price_fn price,
                       void *ctx)
{
    struct any a = {
        .m = start->tree->machine, .limits = limits, .price = price, .ctx = ctx};
    int rc = open_any(&a, start);

    *out = (struct simulate_best){0};
    if (rc == OK)
        list_cores(&a);
    for (int node = 0; rc == OK && node < a.n_nodes; node++)
        rc = order_node(&a, node);
    if (rc == OK)
        rc = try_even(&a);
    if (rc == OK)
        rc = try_mixed(&a);
    if (rc == OK)
        rc = swap_cores(&a);
    if (rc == OK)
        *out = a.best, a.best.tree = NULL;
    mem_free(a.best.tree);
    mem_free(a.n_cores);
    mem_free(a.ranks);
    mem_free(a.order);
    mem_free(a.pus);
    return rc;
}
