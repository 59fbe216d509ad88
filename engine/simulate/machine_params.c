/* The params of a machine: its file, its ranges, and one made from what a host measures. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/name.h"
#include "simulate/contention_rates.h"

#define PARAMS_BYTES_MAX (1 << 20)

struct row {
    const char *key;
    size_t offset;
    double min, max; /* inclusive; INFINITY: JSON's null means no limit */
};
#define ROW(key, min, max)                                                               \
    {                                                                                    \
#key, offsetof(struct simulate_machine_params, key), min, max                    \
    }

/* Wide, to keep out slips of the decimal point and what would make a time of 0 or NaN. */
static const struct row rows[] = {
    ROW(core_gbps, 1e-3, 1e5),
    ROW(sharpness, 0.25, 1e3),
    ROW(node_gbps, 1e-3, INFINITY),
    ROW(contention_from, 0, 1e5),
    ROW(contention_per_core, 0, 1),
    ROW(same_package_factor, 1e-3, 1),
    ROW(other_package_factor, 1e-3, 1),
    ROW(link_gbps, 1e-3, INFINITY),
    ROW(latency_ns, 1, 1e5),
    ROW(mlp, 0.1, 1e4),
    ROW(kappa, 0, 100),
    ROW(core_gflops, 1e-3, 1e6),
    ROW(smt_factor, 1e-2, 1),
    ROW(noise_frac, 0, 1),
    ROW(spike_frac, 0, 10),
    ROW(spike_chance, 0, 1),
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const struct row domain_gbps = {"gbps", 0, 1e-3, INFINITY};
static const struct row factor_range = {"node_factor", 0, 1e-3, 1e3};
static const struct row link_factor = {"links", 0, 1e-3, 1e3};
static const struct row sync_range = {"sync_ns", 0, 0, 1e7};

/* Every key a file may have; the rows first. */
static const char *const keys[] = {"core_gbps",
                                   "sharpness",
                                   "node_gbps",
                                   "contention_from",
                                   "contention_per_core",
                                   "same_package_factor",
                                   "other_package_factor",
                                   "link_gbps",
                                   "latency_ns",
                                   "mlp",
                                   "kappa",
                                   "core_gflops",
                                   "smt_factor",
                                   "noise_frac",
                                   "spike_frac",
                                   "spike_chance",
                                   "bandwidth_domains",
                                   "node_factor",
                                   "sync_ns",
                                   "about",
                                   "assumed",
                                   "sources",
                                   "note",
                                   NULL};
static const char *const domain_keys[] = {"name", "of", "stride", "gbps", NULL};

/* ---- ranges ---- */

MUST static int check_range(const struct row *row, double v, int code, const char *where)
{
    if (v >= row->min && v <= row->max)
        return OK;
    return err_set(code, "%s: %s: expected a number in [%g, %g], found %g", where,
                   row->key, row->min, row->max, v);
}

MUST static int check_domain(const struct simulate_bandwidth_domain *c, int code,
                             const char *where)
{
    if (c->of < 1 || c->stride < 1 || c->of > SIMULATE_PUS_MAX ||
        c->stride > SIMULATE_PUS_MAX)
        return err_set(code,
                       "%s: of and stride: expected integers in [1, %d], found %d, %d",
                       where, SIMULATE_PUS_MAX, c->of, c->stride);
    for (int i = 0; i < SIMULATE_SIZES_MAX; i++)
        if (c->sizes[i] < 0 || c->sizes[i] > SIMULATE_PUS_MAX)
            return err_set(code, "%s: sizes: expected integers in [0, %d], found %d",
                           where, SIMULATE_PUS_MAX, c->sizes[i]);
    return check_range(&domain_gbps, c->gbps, code, where);
}

MUST static int check_links(const struct simulate_machine_params *t,
                            const struct topo_machine *m, int code, const char *where)
{
    if (t->n_links < 0 || t->n_links > SIMULATE_LINKS_MAX)
        return err_set(code, "%s: %d links, at most %d", where, t->n_links,
                       SIMULATE_LINKS_MAX);
    for (int i = 0; i < t->n_links; i++) {
        const struct simulate_link *l = &t->links[i];

        if (l->to == l->from || l->to < 0 || l->from < 0 || l->to >= m->n_packages ||
            l->from >= m->n_packages)
            return err_set(code, "%s: a link to package %d from %d of %d packages", where,
                           l->to, l->from, m->n_packages);
        TRY(check_range(&link_factor, l->factor, code, where));
    }
    return OK;
}

int simulate_machine_params_check(const struct simulate_machine_params *t,
                                  const struct topo_machine *m, int code,
                                  const char *where)
{
    char domain_where[512];
    int rc = OK;

    for (int i = 0; i < N_ROWS && rc == OK; i++)
        rc = check_range(&rows[i], *(const double *)((const char *)t + rows[i].offset),
                         code, where);
    for (int i = 0; i < m->n_nodes && rc == OK; i++)
        rc = check_range(&factor_range, t->node_factor[i], code, where);
    for (int i = 0; i < 4 && rc == OK; i++)
        rc = check_range(&sync_range, t->sync_ns[i], code, where);
    if (rc == OK)
        rc = check_links(t, m, code, where);
    if (rc == OK && (t->n_domains < 0 || t->n_domains > SIMULATE_DOMAINS_MAX))
        rc = err_set(code, "%s: %d bandwidth domains, at most %d", where, t->n_domains,
                     SIMULATE_DOMAINS_MAX);
    for (int i = 0; i < t->n_domains && rc == OK; i++) {
        snprintf(domain_where, sizeof(domain_where), "%s: bandwidth_domains[%d]", where,
                 i);
        rc = check_domain(&t->domains[i], code, domain_where);
    }
    return rc;
}

/* ---- the file ---- */

/* null: no limit, where the range has none. */
MUST static int get_number(const json_t *obj, const struct row *row, double *out,
                           const char *where)
{
    if (isinf(row->max) && json_is_null(json_object_get(obj, row->key))) {
        *out = INFINITY;
        return OK;
    }
    return json_get_f64(obj, row->key, out, where);
}

MUST static int get_domain(struct simulate_bandwidth_domain *c, const json_t *obj,
                           const char *where)
{
    int64_t of = 0, stride = 0;
    const char *name;
    int rc;

    if (!json_is_object(obj))
        return err_set(ERR_FORMAT, "%s: expected an object", where);
    rc = json_check_keys(obj, domain_keys, where);
    if (rc == OK)
        rc = json_get_str(obj, "name", &name, where);
    if (rc == OK)
        rc = json_get_int(obj, "of", 1, SIMULATE_PUS_MAX, &of, where);
    if (rc == OK)
        rc = json_get_int(obj, "stride", 1, SIMULATE_PUS_MAX, &stride, where);
    if (rc == OK)
        rc = get_number(obj, &domain_gbps, &c->gbps, where);
    if (rc != OK)
        return rc;
    c->of = (int)of;
    c->stride = (int)stride;
    if (strlen(name) >= sizeof(c->name))
        return err_set(ERR_LIMIT, "%s: name: longer than %zu bytes", where,
                       sizeof(c->name) - 1);
    strcpy(c->name, name);
    return OK;
}

MUST static int get_domains(struct simulate_machine_params *t, const json_t *obj,
                            const char *path)
{
    char where[512];
    const json_t *a;
    int rc = json_get_arr(obj, "bandwidth_domains", &a, path);

    if (rc != OK)
        return rc;
    if (json_array_size(a) > SIMULATE_DOMAINS_MAX)
        return err_set(ERR_LIMIT, "%s: bandwidth_domains: %zu, at most %d", path,
                       json_array_size(a), SIMULATE_DOMAINS_MAX);
    t->n_domains = (int)json_array_size(a);
    for (int i = 0; i < t->n_domains && rc == OK; i++) {
        snprintf(where, sizeof(where), "%s: bandwidth_domains[%d]", path, i);
        rc = get_domain(&t->domains[i], json_array_get(a, (size_t)i), where);
    }
    return rc;
}

/* Assumptions are named by key: a flag on something that is not there is a slip. */
MUST static int check_assumed(const json_t *obj, const char *path)
{
    const json_t *a;
    int rc = json_get_arr(obj, "assumed", &a, path);

    for (size_t i = 0; rc == OK && i < json_array_size(a); i++) {
        const char *key = json_string_value(json_array_get(a, i));

        if (!key || name_index(keys, key) < 0)
            rc = name_unknown(ERR_FORMAT, key ? key : "", keys,
                              "%s: assumed[%zu]: expected a key of this file", path, i);
    }
    return rc;
}

MUST static int get_truth(struct simulate_machine_params *t, const struct topo_machine *m,
                          const json_t *obj, const char *path)
{
    const json_t *sources;
    int rc = OK;

    if (!json_is_object(obj))
        return err_set(ERR_FORMAT, "%s: expected an object", path);
    rc = json_check_keys(obj, keys, path);
    for (int i = 0; i < N_ROWS && rc == OK; i++)
        rc = get_number(obj, &rows[i], (double *)((char *)t + rows[i].offset), path);
    for (int i = 0; i < SIMULATE_NODES_MAX; i++)
        t->node_factor[i] = 1;
    if (rc == OK && json_object_get(obj, "node_factor"))
        rc = json_get_f64s(obj, "node_factor", t->node_factor, m->n_nodes, path);
    if (rc == OK)
        rc = json_get_f64s(obj, "sync_ns", t->sync_ns, 4, path);
    if (rc == OK)
        rc = get_domains(t, obj, path);
    if (rc == OK)
        rc = json_get_arr(obj, "sources", &sources, path);
    if (rc == OK)
        rc = check_assumed(obj, path);
    return rc == OK ? simulate_machine_params_check(t, m, ERR_FORMAT, path) : rc;
}

int simulate_machine_params_read(struct simulate_machine_params *out,
                                 const struct topo_machine *m, const char *path)
{
    json_t *obj = NULL;
    int rc;

    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%.63s", m->name);
    rc = json_read_file(&obj, path, PARAMS_BYTES_MAX);
    if (rc == OK)
        rc = get_truth(out, m, obj, path);
    json_decref(obj);
    return rc;
}

/* ---- from a host's own figures ---- */

/* A server of the last years; assumptions, where the host's figures say nothing. */
static const struct simulate_machine_params usual = {
    .sharpness = 5,
    .contention_from = 0,
    .contention_per_core = 0,
    .same_package_factor = 0.85,
    .other_package_factor = 0.57, /* 80.8 of 141 ns on a Cascade Lake */
    .link_gbps = 34.3,            /* of the same */
    .latency_ns = 90,
    .mlp = 10,
    .kappa = 0,
    .smt_factor = 0.55,
    .sync_ns = {49, 49, 80, 114},
    .noise_frac = 0.015,
    .spike_frac = 0.05,
    .spike_chance = 0.01,
};

/* Cores of the memory node that has most of them, and of all. */
static void count_host_cores(const struct topo_machine *m, int *n_most, int *n_all)
{
    int on_node[SIMULATE_NODES_MAX] = {0};

    *n_most = *n_all = 0;
    for (int i = 0; i < m->n_pus; i++) {
        int node = m->pus[i].node < 0 ? 0 : m->pus[i].node;
        bool first = true; /* of its core */

        for (int k = 0; k < i && first && m->pus[i].core >= 0; k++)
            first = m->pus[k].core != m->pus[i].core;
        if (!first)
            continue;
        ++*n_all;
        on_node[node]++;
        *n_most = on_node[node] > *n_most ? on_node[node] : *n_most;
    }
}

/* One thread reads smin(b, N) and a full node y = smin(n b, N); with the s-th powers of the
 * reciprocals these are two linear equations for b and N. */
static void solve(double one, double y, int n, double s, double *b, double *node)
{
    double x1 = pow(one / y, -s), xn = 1; /* in units of y, against underflow */
    double shrink = pow(n, -s);
    double ib = (x1 - xn) / (1 - shrink), in = (xn - shrink * x1) / (1 - shrink);

    *b = fmin(pow(ib, -1 / s), 1e3) *
         y; /* one thread fills the node: any larger one does */
    *node = in > 0 ? pow(in, -1 / s) * y : INFINITY;
}

int simulate_machine_params_calibrate(struct simulate_machine_params *out,
                                      const struct topo_machine *machine, double one_gbps,
                                      double all_gbps, double peak_gflops)
{
    int n_most, n_all;
    double full; /* what the largest node reads when all do */

    if (!(one_gbps > 0) || !(all_gbps > 0) || !(peak_gflops > 0) || isinf(one_gbps) ||
        isinf(all_gbps) || isinf(peak_gflops))
        return err_set(ERR_ARG, "%s: cannot calibrate to %g and %g GB/s, %g GFLOP/s",
                       machine->name, one_gbps, all_gbps, peak_gflops);
    if (machine->n_nodes > SIMULATE_NODES_MAX)
        return err_set(ERR_LIMIT, "%s: %d memory nodes, at most %d", machine->name,
                       machine->n_nodes, SIMULATE_NODES_MAX);
    count_host_cores(machine, &n_most, &n_all);
    full = all_gbps * n_most / n_all;
    if (full < one_gbps)
        return err_set(
            ERR_ARG,
            "%s: all CPUs of a memory node read %g GB/s, one alone %g: measured "
            "on a busy machine?",
            machine->name, full, one_gbps);
    *out = usual;
    snprintf(out->name, sizeof(out->name), "%.60s", machine->name);
    for (int i = 0; i < SIMULATE_NODES_MAX; i++)
        out->node_factor[i] = 1;
    out->core_gflops = peak_gflops / n_all;
    out->core_gbps = full / n_most;
    out->node_gbps = INFINITY;
    if (full < one_gbps * n_most)
        solve(one_gbps, full, n_most, out->sharpness, &out->core_gbps, &out->node_gbps);
    return OK;
}
