#include "simulate/contention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "simulate/contention_rates.h"

/* ---- from a machine and a params to tables ---- */

/* Cores in the order of their smallest CPU number: machine->pus is in that order. A CPU
 * without a core reported is one. */
MUST static int number_cores(struct simulate_machine *s)
{
    const struct topo_machine *m = s->machine;
    int *known =
        mem_new(MEM_OTHER, (size_t)m->n_cores + 1, sizeof(*known)); /* core + 1 */

    if (!known)
        return ERR_NOMEM;
    for (int i = 0; i < m->n_pus; i++) {
        int core = m->pus[i].core;

        if (core >= 0 && core < m->n_cores && known[core]) {
            s->core[i] = known[core] - 1;
            continue;
        }
        s->core_node[s->n_cores] = m->pus[i].node;
        s->core[i] = s->n_cores++;
        if (core >= 0 && core < m->n_cores)
            known[core] = s->n_cores;
    }
    mem_free(known);
    return OK;
}

MUST static int find_packages(struct simulate_machine *s)
{
    const struct topo_machine *m = s->machine;

    memset(s->node_package, 0xff, sizeof(s->node_package)); /* -1 */
    for (int i = 0; i < m->n_pus; i++) {
        int package = m->pus[i].package < 0 ? 0 : m->pus[i].package;

        if (m->pus[i].node < 0 || m->pus[i].node >= m->n_nodes)
            return err_set(ERR_ARG, "%s: CPU %d has no memory node", m->name,
                           m->pus[i].os_index);
        if (package >= SIMULATE_NODES_MAX)
            return err_set(ERR_LIMIT, "%s: more than %d packages", m->name,
                           SIMULATE_NODES_MAX);
        if (package >= s->n_packages)
            s->n_packages = package + 1;
        /* one memory node over several packages counts as of the first */
        if (s->node_package[m->pus[i].node] < 0)
            s->node_package[m->pus[i].node] = package;
    }
    return OK;
}

/* The domain of the i-th of a node's n members: progressions of `of` at the domain's stride,
 * or pieces of the listed sizes. */
static int domain_in_node(const struct simulate_bandwidth_domain *domain, int i, int n)
{
    int stride = domain->stride, first = i % stride, at, k = 0, piece = 0;

    if (!domain->sizes[0])
        return i / (domain->of * stride) * stride + first;
    at = first * (n / stride) + (first < n % stride ? first : n % stride) + i / stride;
    while (at >= domain->sizes[piece]) {
        at -= domain->sizes[piece++];
        k++;
        if (piece == SIMULATE_SIZES_MAX || !domain->sizes[piece])
            piece = 0;
    }
    return k;
}

/* The member of a domain of kind c that each core of a node is, or is in, numbered from 0
 * within the node. Returns the number of members. */
static int number_members(const struct simulate_machine *s, int c, int node, int *member)
{
    const int *below = c && !s->params.domains[c].of_cores ? s->domain_of[c - 1] : NULL;
    int first = SIMULATE_PUS_MAX, n = 0;

    for (int i = 0; below && i < s->n_cores; i++)
        if (s->core_node[i] == node && below[i] < first)
            first = below[i];
    for (int i = 0; i < s->n_cores; i++) {
        if (s->core_node[i] != node)
            continue;
        member[i] = below ? below[i] - first : n;
        n = member[i] >= n ? member[i] + 1 : n;
    }
    return n;
}

MUST static int make_domains(struct simulate_machine *s, int c)
{
    const struct simulate_bandwidth_domain *domain = &s->params.domains[c];
    int member[SIMULATE_PUS_MAX], n_domains = 0;

    for (int node = 0; node < s->machine->n_nodes; node++) {
        int n = number_members(s, c, node, member), first = n_domains;

        if (!domain->sizes[0] && n % (domain->of * domain->stride))
            return err_set(
                ERR_ARG,
                "%s: bandwidth domain %s of %d at stride %d does not tile the %d %s of "
                "memory node %d",
                s->machine->name, domain->name, domain->of, domain->stride, n,
                c ? "domains" : "cores", node);
        for (int i = 0; i < s->n_cores; i++) {
            if (s->core_node[i] != node)
                continue;
            s->domain_of[c][i] = first + domain_in_node(domain, member[i], n);
            if (s->domain_of[c][i] >= n_domains)
                n_domains = s->domain_of[c][i] + 1;
        }
    }
    s->domain_count[c] = n_domains;
    return OK;
}

MUST static int build(struct simulate_machine *s)
{
    int rc = find_packages(s);

    if (rc == OK)
        rc = number_cores(s);
    for (int c = 0; c < s->params.n_domains && rc == OK; c++)
        rc = make_domains(s, c);
    return rc;
}

/* All of the numbers have been checked. */
MUST static int sim_make(struct simulate_machine **out, const struct topo_machine *m,
                         const struct simulate_machine_params *params)
{
    struct simulate_machine *s = mem_new(MEM_OTHER, 1, sizeof(*s));
    int rc;

    if (!s)
        return ERR_NOMEM;
    s->machine = m;
    s->params = *params;
    rc = build(s);
    if (rc == OK)
        *out = s, s = NULL; /* the caller's now */
    simulate_machine_close(&s);
    return rc;
}

MUST static int check_size(const struct topo_machine *m)
{
    if (m->n_pus <= SIMULATE_PUS_MAX && m->n_nodes <= SIMULATE_NODES_MAX)
        return OK;
    return err_set(ERR_LIMIT,
                   "%s: %d CPUs and %d memory nodes; simulated are at most %d and %d",
                   m->name, m->n_pus, m->n_nodes, SIMULATE_PUS_MAX, SIMULATE_NODES_MAX);
}

int simulate_machine_new(struct simulate_machine **out,
                         const struct topo_machine *machine,
                         const struct simulate_machine_params *params)
{
    char where[128];
    int rc;

    *out = NULL;
    snprintf(where, sizeof(where), "parameters of %.96s", machine->name);
    rc = check_size(machine);
    if (rc == OK)
        rc = simulate_machine_params_check(params, machine, ERR_ARG, where);
    return rc == OK ? sim_make(out, machine, params) : rc;
}

int simulate_machine_open(struct simulate_machine **out,
                          const struct topo_machine *machine, const char *params_path)
{
    struct simulate_machine_params params;
    int rc;

    *out = NULL;
    rc = check_size(machine);
    if (rc == OK)
        rc = simulate_machine_params_read(&params, machine, params_path);
    if (rc != OK)
        return rc;
    rc = sim_make(out, machine, &params);
    return rc == ERR_ARG ? err_prefix(rc, "%s", params_path) : rc;
}

void simulate_machine_close(struct simulate_machine **s)
{
    mem_free(*s);
    *s = NULL;
}

const struct simulate_machine_params *simulate_params(const struct simulate_machine *s)
{
    return &s->params;
}

int simulate_domain_of(const struct simulate_machine *s, int level, int pu)
{
    return level < s->params.n_domains ? s->domain_of[level][s->core[pu]] : -1;
}

/* ---- the time of a workload ---- */

MUST static int check_config(const struct simulate_machine *s,
                             const struct topo_config *c)
{
    if (c->tree->machine != s->machine)
        return err_set(ERR_ARG, "a configuration of %s, simulated is %s",
                       c->tree->machine->name, s->machine->name);
    if (c->n_ranks < 1 || c->n_threads < 1 || c->n_threads > c->tree->n_pus / c->n_ranks)
        return err_set(ERR_ARG, "%d ranks x %d threads on a tree of %d CPUs", c->n_ranks,
                       c->n_threads, c->tree->n_pus);
    return OK;
}

MUST static int check_workload(const struct simulate_workload *w)
{
    double total = 0;

    if (w->n < 1 || w->n > SIMULATE_STEPS_MAX)
        return err_set(ERR_ARG, "%d steps in a workload, expected 1 to %d", w->n,
                       SIMULATE_STEPS_MAX);
    for (int i = 0; i < w->n; i++) {
        if (!(w->v[i].weight >= 0))
            return err_set(ERR_ARG, "work %d: weight %g, expected 0 or more", i,
                           w->v[i].weight);
        total += w->v[i].weight;
    }
    return total > 0
               ? OK
               : err_set(ERR_ARG, "workload: expected a total weight above 0, found %g",
                         total);
}

/* A configuration's layout and rates, which do not depend on the work. */
struct step_rates {
    struct simulate_rates rates;
    double barrier_s;
    double hand_off_s, allreduce_gbps; /* of a rank's part of an all-reduce */
    double share;                      /* of a thread, were all even */
};

MUST static int step_rates_of(const struct simulate_machine *s,
                              const struct topo_config *c,
                              const struct simulate_layout *l, struct step_rates *p)
{
    double hand_off_ns, lambda;
    int rc = simulate_rates(s, l, &p->rates);

    if (rc != OK)
        return rc;
    p->barrier_s = simulate_barrier_ns(s, l) * 1e-9;
    simulate_neighbours(s, l, &hand_off_ns, &lambda);
    p->hand_off_s = hand_off_ns * 1e-9;
    p->allreduce_gbps = p->rates.read_gbps * c->n_threads * lambda;
    p->share = 1.0 / ((double)c->n_ranks * c->n_threads);
    return OK;
}

/* Rank-shifted: a rank writes its message once and reads it twice, of which one pass is
 * with the writing, in as many hand-offs as ranks. Symmetric: one hand-off, then every rank
 * reads all. The engine takes the faster one. */
static double allreduce_s(const struct step_rates *p, int n_ranks, double bytes)
{
    double pass = bytes / (p->allreduce_gbps * 1e9);

    return n_ranks < 2
               ? 0
               : fmin(2 * pass + n_ranks * p->hand_off_s, n_ranks * pass + p->hand_off_s);
}

static double work_s(const struct step_rates *p, const struct topo_config *c,
                     const struct simulate_step *w)
{
    double a = c->attention_imbalance;
    double mix = w->attention_frac * a + (1 - w->attention_frac) * c->ffn_imbalance;
    double flop = w->flop * mix * p->share;
    double bytes = (w->weight_bytes * mix + w->kv_bytes * a) * p->share;
    double gather = w->gather_bytes * a * p->share;

    return fmax(flop / (p->rates.gflops * 1e9), bytes / (p->rates.read_gbps * 1e9)) +
           gather / (p->rates.gather_gbps * 1e9) + w->n_barriers * p->barrier_s +
           w->n_allreduces * allreduce_s(p, c->n_ranks, w->allreduce_bytes);
}

int simulate_seconds(const struct simulate_machine *s, const struct topo_config *c,
                     const struct topo_config *placement,
                     const struct simulate_workload *workload, double *seconds)
{
    struct simulate_layout placed,
        layout = {c->tree->pus, c->n_ranks, c->n_threads, NULL};
    double sum = 0, weight = 0;
    struct step_rates p;
    int rc;

    *seconds = NAN;
    rc = check_config(s, c);
    if (rc == OK && placement)
        rc = check_config(s, placement);
    if (rc == OK)
        rc = check_workload(workload);
    if (rc != OK)
        return rc;
    if (placement) {
        placed = (struct simulate_layout){placement->tree->pus, placement->n_ranks,
                                          placement->n_threads, NULL};
        layout.placement = &placed;
    }
    rc = step_rates_of(s, c, &layout, &p);
    if (rc != OK)
        return rc;
    for (int i = 0; i < workload->n; i++) {
        sum += workload->v[i].weight * work_s(&p, c, &workload->v[i]);
        weight += workload->v[i].weight;
    }
    *seconds = sum / weight;
    return OK;
}

int simulate_measure(const struct simulate_machine *s, const struct topo_config *c,
                     const struct topo_config *placement,
                     const struct simulate_workload *workload, uint64_t seed, int repeat,
                     double *seconds)
{
    const struct simulate_machine_params *t = &s->params;
    char stream[64];
    struct rng r;
    int rc = simulate_seconds(s, c, placement, workload, seconds);

    if (rc != OK)
        return rc;
    snprintf(stream, sizeof(stream), "measure %016llx %d",
             (unsigned long long)topo_config_key(c), repeat);
    rng_init(&r, seed, stream);
    *seconds *= exp(t->noise_frac * rng_normal(&r));
    if (rng_f64(&r) < t->spike_chance)
        *seconds *= 1 + t->spike_frac;
    return OK;
}

int simulate_stream_gbps(const struct simulate_machine *s, const int *pus, int n_pus,
                         double *gbps)
{
    const struct simulate_layout layout = {pus, n_pus, 1, NULL};
    bool seen[SIMULATE_PUS_MAX] = {false};
    struct simulate_rates rates;
    int rc;

    *gbps = NAN;
    if (n_pus < 1)
        return err_set(ERR_ARG, "no CPU to read with");
    for (int i = 0; i < n_pus; i++) {
        if (pus[i] < 0 || pus[i] >= s->machine->n_pus)
            return err_set(ERR_ARG, "CPU %d of %d in %s", pus[i], s->machine->n_pus,
                           s->machine->name);
        if (seen[pus[i]])
            return err_set(ERR_ARG, "CPU %d: expected once, found twice", pus[i]);
        seen[pus[i]] = true;
    }
    rc = simulate_rates(s, &layout, &rates);
    if (rc != OK)
        return rc;
    *gbps = n_pus * rates.read_gbps;
    return OK;
}
