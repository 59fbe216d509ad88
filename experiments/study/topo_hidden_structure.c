/* Does the search find what a machine hides, and nothing where nothing is hidden: random
 * machines whose parameters are known, and the shipped ones.   Paper: Sandwich 5.2. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "experiments/study/support/topo.h"
#include "simulate/random_machine.h"

#define WITHIN 0.02

struct opts {
    STUDY_TOPO_OPTS
};

static const struct opt_row table[] = {
    OPT_ROW(STR, machine, "random:0.2",
            "random:FRACTION: a random machine, drawn with `seed`, with hidden clusters "
            "that carry less than their cores could draw, by that fraction. Or a shipped "
            "machine, FILE.xml or synthetic:LEVELS."),
    ROWS_TOPO_WORK,
    {0},
};

static const struct study_metric metrics[] = {
    {"gap_frac", "", "lower",
     "time of a step with the configuration found / with the best of all - 1"},
    {"within_2pct", "", "higher", "1: gap_frac is at most 0.02"},
    {"latent", "", "", "1: the search claims that a level that no tool reports pays"},
    {"false_cluster", "", "lower", "latent, on machines that hide nothing"},
    {"kept_frac", "", "", "fraction of cores kept, mean over the hidden clusters"},
    {"kept_frac_min", "", "",
     "fraction of cores kept in the hidden cluster that keeps least"},
    {"kept_frac_max", "", "",
     "fraction of cores kept in the hidden cluster that keeps most"},
    {"best_kept_frac", "", "", "kept_frac of the best of all configurations"},
    {"gain_of_groups", "", "",
     "best step without groups / best step of all - 1, times without noise"},
    {"n_measurements", "", "lower", "measurements of the search"},
    {"n_exhaustive", "", "", "number of all configurations"},
    {"search_s", "s", "lower", "wall time of the search"},
    {"n_pus", "", "", "PUs of the machine"},
    {0},
};

/* --- what there is to find */

struct best {
    struct simulate_best all, ungrouped;
};

static int find_best(const struct study_topo *t, struct best *b)
{
    struct study_topo_asked asked = {.t = t, .phase = TOPO_DECODE};
    struct plan_evaluation e;

    study_topo_evaluator(&e, &asked);
    TRY(simulate_exhaustive(&b->all, t->tree, &t->limits, e.measure, e.ctx, true));
    return simulate_exhaustive(&b->ungrouped, t->tree, &t->limits, e.measure, e.ctx,
                               false);
}

/* Cores that a configuration keeps of each hidden cluster: mean, least, most. NaN where
 * nothing is hidden. */
struct kept_frac {
    double mean, least, most;
};

/* The hidden cluster of the i-th core of a memory node. */
static int cluster_of(const struct simulate_bandwidth_domain *domain, int i)
{
    int tile = domain->of * domain->stride;

    return i / tile * domain->stride + i % domain->stride;
}

static int count_kept(const struct study_topo *t, const struct topo_config *c,
                      struct kept_frac *out)
{
    const struct topo_machine *m = t->machine;
    const struct simulate_machine_params *params = simulate_params(t->sim);
    const struct simulate_bandwidth_domain *domain = &params->domains[0];
    struct core {
        int ordinal; /* 1 + its place among the cores of its node; 0: not seen yet */
        int kept;    /* of the k-th cluster of node n, in element n * n_pus + k */
        bool taken;
    } *core = mem_new(MEM_OTHER, (size_t)m->n_nodes * (size_t)m->n_pus, sizeof(*core));
    int *n_cores = mem_new(MEM_OTHER, (size_t)m->n_nodes, sizeof(*n_cores));
    int rc = core && n_cores ? OK : ERR_NOMEM, n = 0;

    *out = (struct kept_frac){NAN, NAN, NAN};
    if (rc != OK || params->n_domains == 0)
        goto out;
    for (int i = 0; i < m->n_pus; i++)
        if (!core[m->pus[i].core].ordinal)
            core[m->pus[i].core].ordinal = ++n_cores[m->pus[i].node];
    for (int i = 0; i < c->n_ranks * c->n_threads; i++) {
        const struct topo_pu *pu = &m->pus[c->tree->pus[i]];

        if (!core[pu->core].taken)
            core[pu->node * m->n_pus + cluster_of(domain, core[pu->core].ordinal - 1)]
                .kept++;
        core[pu->core].taken = true;
    }
    *out = (struct kept_frac){0, INFINITY, 0};
    for (int node = 0; node < m->n_nodes; node++)
        for (int k = 0; k < n_cores[node] / domain->of; k++, n++) {
            double frac = (double)core[node * m->n_pus + k].kept / domain->of;

            out->least = fmin(out->least, frac);
            out->most = fmax(out->most, frac);
            out->mean += frac;
        }
    out->mean /= n;
out:
    mem_free(core);
    mem_free(n_cores);
    return rc;
}

/* --- a machine */

/* "random:0.2": *strength is 0.2. */
static bool is_random(const char *machine, double *strength)
{
    int end = 0;

    return sscanf(machine, "random:%lf%n", strength, &end) == 1 && !machine[end];
}

static int open_random(struct study_topo *t, int64_t seed, double strength)
{
    struct simulate_random_opts r = {.strength = strength, .seed = (uint64_t)seed};
    struct simulate_machine_params params;

    TRY(simulate_random_machine(&t->machine, &params, &r));
    TRY(simulate_machine_new(&t->sim, t->machine, &params));
    TRY(topo_tree_open(&t->tree, t->machine, NULL, t->note, sizeof(t->note)));
    simulate_random_workload(&t->decode, (uint64_t)seed);
    return OK;
}

/* The machine and its best, which stay until another is asked for: what is best on a shipped
 * machine does not depend on the seed of the noise. */
struct kept {
    char key[128];
    struct best best;
    struct study_topo t;
};

static void forget(void *kept)
{
    struct kept *k = kept;

    mem_free(k->best.all.tree);
    mem_free(k->best.ungrouped.tree);
    study_topo_close(&k->t);
    memset(k, 0, sizeof(*k));
}

static int recall(struct kept *k, const struct opts *o)
{
    char key[sizeof(k->key)];
    double strength;
    bool random = is_random(o->machine, &strength);

    snprintf(key, sizeof(key), "%s|%s|%lld", o->machine, o->model,
             random ? (long long)o->seed : 0LL);
    if (strcmp(key, k->key) == 0)
        return OK;
    forget(k);
    if (random)
        TRY(open_random(&k->t, o->seed, strength));
    else
        TRY(study_topo_open(&k->t, &o->topo, NULL));
    TRY(find_best(&k->t, &k->best));
    memcpy(k->key, key, sizeof(key));
    return OK;
}

/* --- what was found */

static int search(const struct study_topo *t, int64_t seed, struct plan_tree_found *out)
{
    struct study_topo_asked asked = {
        .t = t, .phase = TOPO_DECODE, .seed = (uint64_t)seed, .noise = true};
    struct plan_tree_search_opts s;
    struct plan_evaluation e;

    TRY(opt_init(plan_tree_search_opt_table, &s));
    s.seed = seed;
    study_topo_evaluator(&e, &asked);
    return plan_tree_search(out, t->tree, &t->limits, &e, &s);
}

static int report(const struct study_topo *t, const struct best *b,
                  const struct plan_tree_found *f, struct study_cell *out)
{
    const struct topo_config *c = &f->top[f->best].config;
    bool nothing = simulate_params(t->sim)->n_domains == 0;
    struct kept_frac kept, best;
    double step_s, gap;

    TRY(study_topo_step_s(t, c, TOPO_DECODE, &step_s));
    TRY(count_kept(t, c, &kept));
    TRY(count_kept(t, &b->all.config, &best));
    gap = step_s / b->all.seconds - 1.0;
    const struct study_number all[] = {
        {"gap_frac", gap},
        {"within_2pct", gap <= WITHIN},
        {"latent", f->latent},
        {"false_cluster", nothing ? (double)f->latent : NAN},
        {"kept_frac", kept.mean},
        {"kept_frac_min", kept.least},
        {"kept_frac_max", kept.most},
        {"best_kept_frac", best.mean},
        {"gain_of_groups", b->ungrouped.seconds / b->all.seconds - 1.0},
        {"n_measurements", (double)f->counts.n_measurements},
        {"n_exhaustive", (double)b->all.n_configs},
        {"search_s", f->counts.wall_s},
        {"n_pus", t->machine->n_pus}};

    STUDY_VALUES(out, all, nothing ? "nothing is hidden" : "something is hidden");
    return OK;
}

static void note_plans(const struct study_topo *t, const struct best *b,
                       const struct plan_tree_found *f, struct study_cell *out)
{
    const struct simulate_machine_params *params = simulate_params(t->sim);
    char found[96], best[96];
    json_t *both;

    topo_config_print(&f->top[f->best].config, found, sizeof(found));
    topo_config_print(&b->all.config, best, sizeof(best));
    both = json_pack("{s:s, s:s, s:s, s:s}", "found", found, "found_steps",
                     f->top[f->best].tree->steps, "best", best, "best_steps",
                     b->all.tree->steps);
    if (both && params->n_domains > 0)
        json_object_set_new(both, "hidden",
                            json_pack("{s:i, s:i, s:f}", "cores", params->domains[0].of,
                                      "stride", params->domains[0].stride, "gbps",
                                      params->domains[0].gbps));
    study_note(out, "plans", both);
}

static int run(void *context, const void *opts, struct study_cell *out)
{
    const struct opts *o = opts;
    struct plan_tree_found *f = context;
    struct kept *k = study_kept(out);

    TRY(recall(k, o));
    TRY(search(&k->t, o->seed, f));
    TRY(report(&k->t, &k->best, f, out));
    note_plans(&k->t, &k->best, f, out);
    study_note_text(out, "explain", f->explain);
    return OK;
}

static void end(void *context)
{
    plan_tree_found_free(context);
}

const struct study study_topo_hidden_structure = {
    .name = "topo_hidden_structure",
    .help = "does the search for cores find what is hidden, and only that",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .context_bytes = sizeof(struct plan_tree_found),
    .kept_bytes = sizeof(struct kept),
    .metrics = metrics,
    .run = run,
    .end = end,
    .close = forget,
};
