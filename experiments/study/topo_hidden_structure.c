/* Does the search find what a machine hides, and nothing where nothing is hidden: random
 * machines whose parameters are known, and the shipped ones. The search, parts of it and plans
 * that need no search are all judged by the same machine, without noise, against the best
 * plan that is known for it.   Paper: Sandwich 3.3, 5.2. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/hidden_machine.h"

#define WITHIN 0.02

/* The ways to a plan; the first N_SEARCHES measure. */
enum {
    WHOLE,
    TREES,
    NO_GROUP,
    RANDOM,
    PAPER,
    N_SEARCHES = PAPER + 10,
    ALL_CORES = N_SEARCHES,
    ONE_PER_NODE,
    N_WAYS
};
/* What the paper leaves open in its search: its patience, 0: never stop early, and by how many
 * times the noise an improvement must be one. */
static const struct {
    const char *suffix;
    int patience, margin;
} ways[N_WAYS] = {
    {"", 0, 0},
    {"_trees", 0, 0},
    {"_no_group", 0, 0},
    {"_random", 0, 0},
    {"_paper", 0, 0},
    {"_paper_patience_1", 1, 0},
    {"_paper_patience_3", 3, 0},
    {"_paper_patience_10", 10, 0},
    {"_paper_patience_30", 30, 0},
    {"_paper_margin_2", 0, 2},
    {"_paper_margin_2_patience_1", 1, 2},
    {"_paper_margin_2_patience_3", 3, 2},
    {"_paper_margin_2_patience_10", 10, 2},
    {"_paper_margin_2_patience_30", 30, 2},
    {"_all_cores", 0, 0},
    {"_one_rank_per_node", 0, 0},
};

#define OPTIONS(X) OPTIONS_HIDDEN_MACHINE(X)

#define PATIENCES(X, name, unit, better, text)                                           \
    X(name, unit, better, text ", never stopped early")                                  \
    X(name##_patience_1, unit, better, text ", stopped early with a patience of 1")      \
    X(name##_patience_3, unit, better, text ", ... of 3")                                \
    X(name##_patience_10, unit, better, text ", ... of 10")                              \
    X(name##_patience_30, unit, better, text ", ... of 30")
#define SEARCHES(X, name, unit, better, text)                                            \
    X(name, unit, better, text ": the search")                                           \
    X(name##_trees, unit, better, text ": the search of trees alone")                    \
    X(name##_no_group, unit, better, text ": ... without groups")                        \
    X(name##_random, unit, better,                                                       \
      text ": random trees, as many measurements as the search")                         \
    PATIENCES(X, name##_paper, unit, better,                                             \
              text ": the paper's search, any improvement counts")                       \
    PATIENCES(X, name##_paper_margin_2, unit, better,                                    \
              text ": the paper's search, an improvement of twice the noise counts")
#define WAYS(X, name, unit, better, text)                                                \
    SEARCHES(X, name, unit, better, text)                                                \
    X(name##_all_cores, unit, better, text ": one rank of all PUs")                      \
    X(name##_one_rank_per_node, unit, better, text ": one rank per memory node, all PUs")

#define RESULTS(X)                                                                       \
    WAYS(X, step_s, "s", LOWER, "time of a step without noise")                          \
    WAYS(X, within_2pct, "", HIGHER, "1: step_s is at most 2 % above best_s")            \
    X(best_s, "s", LOWER, "time of a step with the best plan known, of any cores")       \
    X(best_of_trees_s, "s", LOWER, "... with the best of all trees")                     \
    X(gap_frac, "", LOWER, "step_s / best_s - 1")                                        \
    X(gap_frac_trees, "", LOWER, "... of the search of trees alone")                     \
    X(gap_frac_paper, "", LOWER, "... of the paper's search")                            \
    X(gap_of_trees_frac, "", LOWER,                                                      \
      "best_of_trees_s / best_s - 1: what trees cannot express")                         \
    X(within_2pct_of_trees, "", HIGHER,                                                  \
      "1: step_s is at most 2 % above best_of_trees_s")                                  \
    X(latent, "", 0, "1: the search claims that a level that no tool reports pays")      \
    X(latent_where_it_pays, "", HIGHER,                                                  \
      "latent, on machines where gain_of_groups is above 2 %")                           \
    X(false_cluster, "", LOWER, "latent, on machines that hide nothing")                 \
    X(kept_frac, "", 0,                                                                  \
      "fraction of cores that the search of trees keeps, mean over the hidden clusters") \
    X(kept_frac_min, "", 0,                                                              \
      "fraction of cores kept in the hidden cluster that keeps least")                   \
    X(kept_frac_max, "", 0,                                                              \
      "fraction of cores kept in the hidden cluster that keeps most")                    \
    X(best_kept_frac, "", 0, "kept_frac of the best of all trees")                       \
    X(gain_of_groups, "", 0,                                                             \
      "best step of trees without groups / best_of_trees_s - 1, times without noise")    \
    X(noise_frac, "", 0, "noise of one measurement as the search estimated it")          \
    X(true_noise_frac, "", 0, "noise of one measurement as it was drawn, spikes apart")  \
    SEARCHES(X, n_measurements, "", LOWER, "measurements")                               \
    X(n_exhaustive, "", 0, "number of all configurations of trees")                      \
    X(n_any_cores, "", 0, "number of other plans that were priced for best_s")           \
    X(search_s, "s", LOWER | MEASURED,                                                   \
      "wall time of the search on this host, which only simulates its measurements")     \
    X(n_ranks, "", 0, "ranks of the plan found")                                         \
    X(n_pus, "", 0, "PUs of the machine")

FRAME_TYPES;

struct topo_hidden_structure {
    FRAME_CELL;
    struct plan_tree_result found[N_SEARCHES];
    struct topo_config plan[N_WAYS];
    double step_s[N_WAYS];
    double best_s;     /* of all plans known, those of the searches included */
    double noise_frac; /* as the search estimated it */
};

/* --- the plans */

/* All searches have the same limits and repeats. Random trees get as many measurements as the
 * search made. */
static int hidden_search(struct topo_hidden_structure *c, int way,
                         const struct hidden_machine *k, int64_t seed)
{
    struct study_topo_asked asked = study_hidden_asked(k, seed, true);
    struct plan_tree_result *f = &c->found[way];
    struct plan_tree_search_opts s;

    TRY(opt_init(plan_tree_search_opt_table, &s));
    s.seed = seed;
    s.max_s = 0; /* the plan must not depend on how busy this host is */
    s.group = way != NO_GROUP;
    s.random = way == RANDOM;
    s.uneven = way == WHOLE;
    if (way >= PAPER) {
        plan_tree_search_as_paper(&s);
        s.patience = ways[way].patience;
        s.margin = ways[way].margin;
    }
    if (way == RANDOM)
        s.max_measurements = c->found[WHOLE].counts.n_measurements;
    TRY(study_topo_find(f, &asked, &s));
    c->noise_frac = asked.noise_frac;
    c->plan[way] = f->top[f->best].config;
    return OK;
}

static int find_plans(struct topo_hidden_structure *c, const struct hidden_machine *k,
                      int64_t seed)
{
    static const struct topo_limits none;
    const struct topo_tree *tree = k->t.tree;

    for (int way = 0; way < N_SEARCHES; way++)
        TRY(hidden_search(c, way, k, seed));
    TRY(topo_config_cut(&c->plan[ALL_CORES], tree, 0, &none));
    TRY(topo_config_cut(&c->plan[ONE_PER_NODE], tree, study_topo_node_level(tree),
                        &none));
    c->best_s = k->any.seconds;
    for (int way = 0; way < N_WAYS; way++) {
        TRY(study_hidden_step_s(k, &c->plan[way], &c->step_s[way]));
        c->best_s = fmin(c->best_s, c->step_s[way]);
    }
    return OK;
}

/* Cores that a configuration keeps of each hidden cluster: mean, least, most. NaN where
 * there is none. */
struct kept_frac {
    double mean, least, most;
};

static struct kept_frac count_kept(const struct study_topo *t,
                                   const struct topo_config *c)
{
    const struct topo_machine *m = t->machine;
    struct count {
        int cores, kept;   /* of a cluster */
        bool known, taken; /* a core, by its number */
    } * count;
    struct kept_frac out = {0, INFINITY, -INFINITY};
    int n = 0;

    if (simulate_domain_of(t->sim, 0, 0) < 0)
        return (struct kept_frac){NAN, NAN, NAN};
    count = mem_new(MEM_OTHER, (size_t)m->n_pus, sizeof(*count));
    for (int i = 0; i < m->n_pus; i++)
        if (!count[m->pus[i].core].known) {
            count[m->pus[i].core].known = true;
            count[simulate_domain_of(t->sim, 0, i)].cores++;
        }
    for (int i = 0; i < c->tree->n_pus; i++) {
        int pu = c->tree->pus[i], cluster = simulate_domain_of(t->sim, 0, pu);

        count[cluster].kept += !count[m->pus[pu].core].taken;
        count[m->pus[pu].core].taken = true;
    }
    for (int i = 0; i < m->n_pus && count[i].cores; i++, n++) {
        double frac = (double)count[i].kept / count[i].cores;

        out.least = fmin(out.least, frac);
        out.most = fmax(out.most, frac);
        out.mean += frac;
    }
    out.mean /= n;
    mem_free(count);
    return out;
}

/* --- the report */

static bool hides_nothing(const struct study_topo *t)
{
    const struct simulate_machine_params *params = simulate_params(t->sim);

    for (int i = 0; i < t->machine->n_nodes; i++)
        if (params->node_factor[i] != 1)
            return false;
    return params->n_domains == 0 && params->n_links == 0;
}

static void hidden_report(struct topo_hidden_structure *c, const struct hidden_machine *k)
{
    const struct study_topo *t = &k->t;
    const struct plan_tree_result *f = &c->found[WHOLE];
    double gain = k->ungrouped.seconds / k->all.seconds - 1.0;
    bool nothing = hides_nothing(t);
    struct kept_frac kept = count_kept(t, &c->plan[TREES]);
    struct kept_frac best = count_kept(t, &k->all.config);
    struct results *r = c->r;

    r->best_s = c->best_s;
    r->best_of_trees_s = k->all.seconds;
    r->gap_frac = c->step_s[WHOLE] / c->best_s - 1.0;
    r->gap_frac_trees = c->step_s[TREES] / c->best_s - 1.0;
    r->gap_frac_paper = c->step_s[PAPER] / c->best_s - 1.0;
    r->gap_of_trees_frac = k->all.seconds / c->best_s - 1.0;
    r->within_2pct_of_trees = c->step_s[WHOLE] <= (1 + WITHIN) * k->all.seconds;
    r->latent = f->latent;
    r->latent_where_it_pays = gain > WITHIN ? (double)f->latent : NAN;
    r->false_cluster = nothing ? (double)f->latent : NAN;
    r->kept_frac = kept.mean;
    r->kept_frac_min = kept.least;
    r->kept_frac_max = kept.most;
    r->best_kept_frac = best.mean;
    r->gain_of_groups = gain;
    r->noise_frac = c->noise_frac;
    r->true_noise_frac = simulate_params(t->sim)->noise_frac;
    r->n_exhaustive = (double)k->all.n_configs;
    r->n_any_cores = (double)k->any.n_configs;
    r->search_s = f->counts.wall_s;
    r->n_ranks = c->plan[WHOLE].n_ranks;
    r->n_pus = t->machine->n_pus;

    frame_why(c->f, NULL,
              nothing ? "nothing is hidden" : "does not apply to what is hidden");
    for (int way = 0; way < N_WAYS; way++) {
        const char *suffix = ways[way].suffix;

        *frame_named(c->f, "step_s%s", suffix) = c->step_s[way];
        *frame_named(c->f, "within_2pct%s", suffix) =
            c->step_s[way] <= (1 + WITHIN) * c->best_s;
        if (way < N_SEARCHES)
            *frame_named(c->f, "n_measurements%s", suffix) =
                (double)c->found[way].counts.n_measurements;
    }
}

/* Everything that a step's time follows from, so that the record alone can be checked. */
static void note_machine(const struct hidden_machine *k, struct study_cell *out)
{
    const struct study_topo *t = &k->t;
    const struct simulate_machine_params *p = simulate_params(t->sim);
    const struct simulate_step *w = &t->decode.v[0];
    json_t *domains = json_array();

    for (int i = 0; i < p->n_domains; i++) {
        const struct simulate_bandwidth_domain *d = &p->domains[i];

        json_array_append_new(domains, json_pack("{s:i, s:i, s:o, s:[i, i, i, i], s:b}",
                                                 "of", d->of, "stride", d->stride, "gbps",
                                                 json_number(d->gbps), "sizes",
                                                 d->sizes[0], d->sizes[1], d->sizes[2],
                                                 d->sizes[3], "of_cores", d->of_cores));
    }
    study_note(
        out, "hidden",
        json_pack("{s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:[f, f, f, f], s:o}",
                  "core_gbps", p->core_gbps, "sharpness", p->sharpness, "node_gbps",
                  json_number(p->node_gbps), "contention_from", p->contention_from,
                  "contention_per_core", p->contention_per_core, "latency_ns",
                  p->latency_ns, "mlp", p->mlp, "kappa", p->kappa, "core_gflops",
                  p->core_gflops, "sync_ns", p->sync_ns[0], p->sync_ns[1], p->sync_ns[2],
                  p->sync_ns[3], "domains", domains));
    study_note(out, "work",
               json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "flop", w->flop, "read_bytes",
                         w->weight_bytes + w->kv_bytes, "gather_bytes", w->gather_bytes,
                         "n_barriers", w->n_barriers, "n_allreduces", w->n_allreduces,
                         "allreduce_bytes", w->allreduce_bytes));
    study_note_text(out, "machine", t->machine->name);
}

static void note_plans(const struct hidden_machine *k,
                       const struct topo_hidden_structure *c, struct study_cell *out)
{
    const struct topo_tree *tree = c->plan[WHOLE].tree;
    double *pus = mem_new(MEM_OTHER, (size_t)tree->n_pus, sizeof(*pus));
    char found[96], trees[96], any[96];

    for (int i = 0; i < tree->n_pus; i++)
        pus[i] = tree->pus[i];
    study_series(out, "pus", "", pus, (size_t)tree->n_pus);
    mem_free(pus);
    topo_config_print(&c->plan[WHOLE], found, sizeof(found));
    topo_config_print(&k->all.config, trees, sizeof(trees));
    topo_config_print(&k->any.config, any, sizeof(any));
    study_note(out, "plans",
               json_pack("{s:s, s:s, s:s, s:s, s:s}", "found", found, "found_steps",
                         tree->steps, "best_of_trees", trees, "best_of_trees_steps",
                         k->all.tree->steps, "best", any));
}

static void hidden_close(struct topo_hidden_structure *c)
{
    for (int way = 0; way < N_SEARCHES; way++)
        plan_tree_result_free(&c->found[way]);
}

static int topo_hidden_structure_run(struct topo_hidden_structure *c)
{
    struct hidden_machine *k = study_kept(c->out);

    FRAME_CLOSE(c->f, hidden_close, c);
    TRY(study_hidden_machine_open(k, &STUDY_TOPO_OPTS, (int)c->o->max_cores));
    TRY(find_plans(c, k, c->o->seed));
    hidden_report(c, k);
    note_machine(k, c->out);
    note_plans(k, c, c->out);
    study_note_text(c->out, "explain", c->found[WHOLE].explain);
    return OK;
}

STUDY(topo_hidden_structure,
      "whether the search finds hidden structure, and only where there is some",
      .kept_bytes = sizeof(struct hidden_machine), .close = study_hidden_machine_close);
