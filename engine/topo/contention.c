#include "topo/contention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "topo/contention_sim.h"

/* ---- from a machine and a truth to tables ---- */

/* Cores in the order of their smallest CPU number: machine->pus is in that order. A CPU
 * without a core reported is one. */
MUST static int number_cores(struct topo_sim *s)
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

MUST static int find_packages(struct topo_sim *s)
{
    const struct topo_machine *m = s->machine;

    memset(s->node_package, 0xff, sizeof(s->node_package)); /* -1 */
    for (int i = 0; i < m->n_pus; i++) {
        int package = m->pus[i].package < 0 ? 0 : m->pus[i].package;

        if (m->pus[i].node < 0 || m->pus[i].node >= m->n_nodes)
            return err_set(ERR_ARG, "%s: CPU %d has no memory node", m->name,
                           m->pus[i].os_index);
        if (package >= TOPO_NODES_MAX)
            return err_set(ERR_LIMIT, "%s: more than %d packages", m->name,
                           TOPO_NODES_MAX);
        if (package >= s->n_packages)
            s->n_packages = package + 1;
        /* one memory node over several packages counts as of the first */
        if (s->node_package[m->pus[i].node] < 0)
            s->node_package[m->pus[i].node] = package;
    }
    return OK;
}

/* Port of the i-th thing of a node: progressions of `of` at the cap's stride. */
static int port_in_node(const struct topo_cap *cap, int i)
{
    return i / (cap->of * cap->stride) * cap->stride + i % cap->stride;
}

/* `node_of` of the n things below a cap; in their place, of its ports. */
MUST static int make_ports(struct topo_sim *s, int c, int *node_of, int *n)
{
    const struct topo_cap *cap = &s->truth.caps[c];
    int ports_node[TOPO_SIM_PUS_MAX], n_ports = 0;

    for (int node = 0; node < s->machine->n_nodes; node++) {
        int n_below = 0;

        for (int i = 0; i < *n; i++)
            if (node_of[i] == node)
                s->port[c][i] = n_ports + port_in_node(cap, n_below++);
        if (n_below % (cap->of * cap->stride))
            return err_set(ERR_ARG,
                           "%s: cap %s of %d at stride %d does not tile the %d %s of "
                           "memory node %d",
                           s->machine->name, cap->name, cap->of, cap->stride, n_below,
                           c ? "ports" : "cores", node);
        for (int i = 0; i < n_below / cap->of; i++)
            ports_node[n_ports++] = node;
    }
    memcpy(node_of, ports_node, (size_t)n_ports * sizeof(int));
    *n = s->n_ports[c] = n_ports;
    return OK;
}

MUST static int build(struct topo_sim *s)
{
    int node_of[TOPO_SIM_PUS_MAX], n, rc;

    rc = find_packages(s);
    if (rc == OK)
        rc = number_cores(s);
    if (rc != OK)
        return rc;
    n = s->n_cores;
    memcpy(node_of, s->core_node, (size_t)n * sizeof(int));
    for (int c = 0; c < s->truth.n_caps && rc == OK; c++)
        rc = make_ports(s, c, node_of, &n);
    return rc;
}

/* All of the truth's numbers have been checked. */
MUST static int sim_make(struct topo_sim **out, const struct topo_machine *m,
                         const struct topo_truth *truth)
{
    struct topo_sim *s = mem_new(MEM_OTHER, 1, sizeof(*s));
    int rc;

    if (!s)
        return ERR_NOMEM;
    s->machine = m;
    s->truth = *truth;
    rc = build(s);
    if (rc == OK)
        *out = s, s = NULL; /* the caller's now */
    topo_sim_close(&s);
    return rc;
}

MUST static int check_size(const struct topo_machine *m)
{
    if (m->n_pus <= TOPO_SIM_PUS_MAX && m->n_nodes <= TOPO_NODES_MAX)
        return OK;
    return err_set(ERR_LIMIT,
                   "%s: %d CPUs and %d memory nodes; simulated are at most %d and %d",
                   m->name, m->n_pus, m->n_nodes, TOPO_SIM_PUS_MAX, TOPO_NODES_MAX);
}

int topo_sim_new(struct topo_sim **out, const struct topo_machine *machine,
                 const struct topo_truth *truth)
{
    char where[128];
    int rc;

    *out = NULL;
    snprintf(where, sizeof(where), "truth of %.96s", machine->name);
    rc = check_size(machine);
    if (rc == OK)
        rc = topo_truth_check(truth, machine, ERR_ARG, where);
    return rc == OK ? sim_make(out, machine, truth) : rc;
}

int topo_sim_open(struct topo_sim **out, const struct topo_machine *machine,
                  const char *truth_path)
{
    struct topo_truth truth;
    int rc;

    *out = NULL;
    rc = check_size(machine);
    if (rc == OK)
        rc = topo_truth_read(&truth, machine, truth_path);
    if (rc != OK)
        return rc;
    rc = sim_make(out, machine, &truth);
    return rc == ERR_ARG ? err_prefix(rc, "%s", truth_path) : rc;
}

void topo_sim_close(struct topo_sim **s)
{
    mem_free(*s);
    *s = NULL;
}

const struct topo_truth *topo_sim_truth(const struct topo_sim *s)
{
    return &s->truth;
}

/* ---- the time of works ---- */

MUST static int check_config(const struct topo_sim *s, const struct topo_config *c)
{
    if (c->tree->machine != s->machine)
        return err_set(ERR_ARG, "a configuration of %s, simulated is %s",
                       c->tree->machine->name, s->machine->name);
    if (c->n_ranks < 1 || c->n_threads < 1 || c->n_threads > c->tree->n_pus / c->n_ranks)
        return err_set(ERR_ARG, "%d ranks x %d threads on a tree of %d CPUs", c->n_ranks,
                       c->n_threads, c->tree->n_pus);
    return OK;
}

MUST static int check_works(const struct topo_works *w)
{
    double total = 0;

    if (w->n < 1 || w->n > TOPO_WORKS_MAX)
        return err_set(ERR_ARG, "%d works, expected 1 to %d", w->n, TOPO_WORKS_MAX);
    for (int i = 0; i < w->n; i++) {
        if (!(w->v[i].weight >= 0))
            return err_set(ERR_ARG, "work %d: weight %g, expected 0 or more", i,
                           w->v[i].weight);
        total += w->v[i].weight;
    }
    return total > 0 ? OK : err_set(ERR_ARG, "works without weight");
}

/* What every work of a configuration shares. */
struct pace {
    struct topo_rates rates;
    double barrier_s;
    double hand_off_s, allreduce_gbps; /* of a rank's part of an all-reduce */
    double share;                      /* of a thread, were all even */
};

static void pace_of(const struct topo_sim *s, const struct topo_config *c,
                    const struct topo_layout *l, struct pace *p)
{
    double hand_off_ns, lambda;

    topo_sim_rates(s, l, &p->rates);
    p->barrier_s = topo_sim_barrier_ns(s, l) * 1e-9;
    topo_sim_neighbours(s, l, &hand_off_ns, &lambda);
    p->hand_off_s = hand_off_ns * 1e-9;
    p->allreduce_gbps = p->rates.read_gbps * c->n_threads * lambda;
    p->share = 1.0 / ((double)c->n_ranks * c->n_threads);
}

/* Rank-shifted: a rank writes its message once and reads it twice, of which one pass is
 * with the writing, in as many hand-offs as ranks; symmetric: one hand-off, then everybody
 * reads all. The engine takes the faster one. */
static double allreduce_s(const struct pace *p, int n_ranks, double bytes)
{
    double pass = bytes / (p->allreduce_gbps * 1e9);

    return n_ranks < 2
               ? 0
               : fmin(2 * pass + n_ranks * p->hand_off_s, n_ranks * pass + p->hand_off_s);
}

static double work_s(const struct pace *p, const struct topo_config *c,
                     const struct topo_work *w)
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

int topo_sim_seconds(const struct topo_sim *s, const struct topo_config *c,
                     const struct topo_config *placement, const struct topo_works *works,
                     double *seconds)
{
    struct topo_layout placed, layout = {c->tree->pus, c->n_ranks, c->n_threads, NULL};
    double sum = 0, weight = 0;
    struct pace p;
    int rc;

    *seconds = NAN;
    rc = check_config(s, c);
    if (rc == OK && placement)
        rc = check_config(s, placement);
    if (rc == OK)
        rc = check_works(works);
    if (rc != OK)
        return rc;
    if (placement) {
        placed = (struct topo_layout){placement->tree->pus, placement->n_ranks,
                                      placement->n_threads, NULL};
        layout.placement = &placed;
    }
    pace_of(s, c, &layout, &p);
    for (int i = 0; i < works->n; i++) {
        sum += works->v[i].weight * work_s(&p, c, &works->v[i]);
        weight += works->v[i].weight;
    }
    *seconds = sum / weight;
    return OK;
}

int topo_sim_measure(const struct topo_sim *s, const struct topo_config *c,
                     const struct topo_config *placement, const struct topo_works *works,
                     uint64_t seed, int repeat, double *seconds)
{
    const struct topo_truth *t = &s->truth;
    char stream[64];
    struct rng r;
    int rc = topo_sim_seconds(s, c, placement, works, seconds);

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

int topo_sim_stream_gbps(const struct topo_sim *s, const int *pus, int n_pus,
                         double *gbps)
{
    const struct topo_layout layout = {pus, n_pus, 1, NULL};
    bool seen[TOPO_SIM_PUS_MAX] = {false};
    struct topo_rates rates;

    *gbps = NAN;
    if (n_pus < 1)
        return err_set(ERR_ARG, "no CPU to read with");
    for (int i = 0; i < n_pus; i++) {
        if (pus[i] < 0 || pus[i] >= s->machine->n_pus)
            return err_set(ERR_ARG, "CPU %d of %d in %s", pus[i], s->machine->n_pus,
                           s->machine->name);
        if (seen[pus[i]])
            return err_set(ERR_ARG, "CPU %d twice", pus[i]);
        seen[pus[i]] = true;
    }
    topo_sim_rates(s, &layout, &rates);
    *gbps = n_pus * rates.read_gbps;
    return OK;
}
