/* The search for a phase's cores on a simulated machine: what it finds, what it costs,
 * and what is lost when a part of it is left out.   Paper: Sandwich 5.2, 8.4, B, Tables 2 and 4. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/topo.h"

enum { WHOLE, NO_GROUP, NO_REMOVE, NO_PRUNE, NO_HASH, RANDOM, ALL_CORES, EVEN_SPLIT };

#define OPTIONS(X)                                                                       \
    OPTIONS_TOPO(X, "kunpeng920x4")                                                      \
    X(ENUM, phase, "decode", "Phase whose cores are searched.",                          \
      .values = "prefill|decode")                                                        \
    X(ENUM, method, "whole",                                                             \
      "The whole search, or without one of its parts. random: random "                   \
      "configurations, as many measurements as the whole search. all_cores: one "        \
      "rank of all cores. even_split: one rank per memory node.",                        \
      .values = "whole|no_group|no_remove|no_prune|no_hash|random|all_cores|even_split") \
    X(INT, k, "10", "Number of best configurations that are measured again at the end.", \
      .min = 1, .max = 1000)                                                             \
    X(BOOL, exhaustive, "false",                                                         \
      "Evaluate every configuration as well, to compute gap_frac.")

#define RESULTS(X)                                                                       \
    X(step_s, "s", LOWER, "time of a step with the chosen configuration, without noise") \
    X(tokens_per_s, "tok/s", HIGHER, "tokens of a step / step_s")                        \
    X(gap_frac, "", LOWER, "step_s / time of the best of all configurations - 1")        \
    X(speedup_vs_all_cores, "x", HIGHER,                                                 \
      "time of a step with one rank of all PUs / step_s")                                \
    X(speedup_vs_even_split, "x", HIGHER,                                                \
      "time of a step with one rank per memory node, all PUs / step_s")                  \
    X(group_s, "s", LOWER | MEASURED,                                                    \
      "wall time in which group made the trees, part of search_s")                       \
    X(search_s, "s", LOWER | MEASURED,                                                   \
      "wall time of the search on this host, which only simulates its measurements")     \
    X(measuring_s, "s", LOWER,                                                           \
      "time that its measurements would take on the machine itself")                     \
    X(n_measurements, "", LOWER, "measurements of single steps")                         \
    X(n_configs, "", 0, "different configurations measured")                             \
    X(n_grouped, "", 0, "trees that groups make of the fundamental tree")                \
    X(n_trees, "", 0, "different trees explored")                                        \
    X(n_merged, "", 0, "trees reached again and recognised by their hash")               \
    X(n_pruned, "", 0,                                                                   \
      "trees not transformed further, since no faster than their parent")                \
    X(n_removes, "", 0, "trees that removes make of the fundamental tree")               \
    X(complete, "", 0, "1: the search ended by itself; 0: its budget ended it")          \
    X(n_ranks, "", 0, "ranks of the chosen configuration")                               \
    X(n_threads, "", 0, "threads of each rank")                                          \
    X(n_pus, "", 0, "PUs of the fundamental tree")                                       \
    X(kept_frac, "", 0, "PUs used / PUs of the fundamental tree")                        \
    X(latent, "", 0, "1: the search claims that a level that no tool reports pays")      \
    X(n_ties, "", 0,                                                                     \
      "of the k best configurations, those that equal the best within noise")            \
    X(peak_rss_mb, "MiB", LOWER | MEASURED, "peak resident memory of the process")

FRAME_TYPES;

/* The best step of all configurations, found once for the cells that share it. */
struct cache {
    char key[256];
    double seconds;
};

struct topo_search {
    FRAME_CELL;
    struct study_topo topo;
    struct plan_tree_result found; /* empty where nothing was searched */
    struct topo_config chosen;
    double measuring_s, step_s, all_cores_s, even_s, best_s;
};

static int best_of_all(struct topo_search *c, struct cache *known)
{
    const struct opts *o = c->o;
    struct study_topo_asked asked = {.t = &c->topo, .phase = (enum topo_phase)o->phase};
    struct plan_evaluation e;
    struct simulate_best best;
    char key[256];
    int rc;

    c->best_s = NAN;
    if (!o->exhaustive)
        return OK;
    snprintf(key, sizeof(key), "%s|%s|%s|%d|%d|%lld|%lld", o->machine, o->model, o->fit,
             o->type, o->phase, (long long)o->n_requests, (long long)o->seed);
    if (strcmp(key, known->key) != 0) {
        TRY(study_topo_evaluator(&e, &asked));
        rc = simulate_exhaustive(&best, c->topo.tree, &c->topo.limits, e.measure, e.ctx,
                                 true);
        mem_free(best.tree);
        if (rc != OK)
            return rc;
        known->seconds = best.seconds;
        memcpy(known->key, key, sizeof(key));
    }
    c->best_s = known->seconds;
    return OK;
}

/* A plan that needs no search: a cross-section of the fundamental tree. */
static int cut(const struct topo_search *c, int level, struct topo_config *out,
               double *seconds)
{
    const struct topo_limits none = {0};

    TRY(topo_config_cut(out, c->topo.tree, level, &none));
    return study_topo_step_s(&c->topo, out, (enum topo_phase)c->o->phase, seconds);
}

static int search_once(struct topo_search *c, const struct plan_tree_search_opts *s)
{
    struct study_topo_asked asked = {.t = &c->topo,
                                     .phase = (enum topo_phase)c->o->phase,
                                     .seed = (uint64_t)c->o->seed,
                                     .noise = true};
    int rc;

    plan_tree_result_free(&c->found);
    rc = study_topo_find(&c->found, &asked, s);
    c->measuring_s = asked.sum_s;
    return rc;
}

/* A random search may measure as often as the whole one needs. */
static int topo_search_search(struct topo_search *c)
{
    const struct opts *o = c->o;
    struct plan_tree_search_opts s;

    TRY(opt_init(plan_tree_search_opt_table, &s));
    s.k = o->k;
    s.seed = o->seed;
    s.max_measurements = 0;
    s.max_s = 60;
    s.group = o->method != NO_GROUP;
    s.remove = o->method != NO_REMOVE;
    s.prune = o->method != NO_PRUNE;
    s.hash = o->method != NO_HASH;
    s.uneven = false; /* the paper's trees; topo_hidden_structure goes beyond them */
    if (o->method == RANDOM) {
        TRY(search_once(c, &s));
        s.max_measurements = c->found.counts.n_measurements;
    }
    s.random = o->method == RANDOM;
    TRY(search_once(c, &s));
    c->chosen = c->found.top[c->found.best].config;
    return OK;
}

static int topo_search_find(struct topo_search *c)
{
    struct topo_config all, even;

    TRY(cut(c, 0, &all, &c->all_cores_s));
    TRY(cut(c, study_topo_node_level(c->topo.tree), &even, &c->even_s));
    if (c->o->method == ALL_CORES)
        c->chosen = all;
    else if (c->o->method == EVEN_SPLIT)
        c->chosen = even;
    else
        TRY(topo_search_search(c));
    return study_topo_step_s(&c->topo, &c->chosen, (enum topo_phase)c->o->phase,
                             &c->step_s);
}

static void topo_search_report(struct topo_search *c)
{
    struct results *r = c->r;
    const struct plan_tree_search_counts *n = &c->found.counts;
    const struct topo_tree *tree = c->topo.tree;
    double tokens = c->o->phase == TOPO_PREFILL ? c->topo.prompt_tok : 1;
    int n_used = c->chosen.n_ranks * c->chosen.n_threads, n_ties = 0;

    for (int i = 0; i < c->found.n_top; i++)
        n_ties += c->found.top[i].ties;
    r->step_s = c->step_s;
    r->tokens_per_s = tokens / c->step_s;
    r->gap_frac = c->step_s / c->best_s - 1.0;
    r->speedup_vs_all_cores = c->all_cores_s / c->step_s;
    r->speedup_vs_even_split = c->even_s / c->step_s;
    r->group_s = n->group_s;
    r->search_s = n->wall_s;
    r->measuring_s = c->measuring_s;
    r->n_measurements = (double)n->n_measurements;
    r->n_configs = (double)n->n_configs;
    r->n_grouped = (double)n->n_grouped;
    r->n_trees = (double)n->n_trees;
    r->n_merged = (double)n->n_merged;
    r->n_pruned = (double)n->n_pruned;
    r->n_removes = (double)topo_tree_remove_count(tree);
    r->complete = c->found.n_top ? n->complete : 1.0;
    r->n_ranks = c->chosen.n_ranks;
    r->n_threads = c->chosen.n_threads;
    r->n_pus = tree->n_pus;
    r->kept_frac = (double)n_used / tree->n_pus;
    r->latent = c->found.latent;
    r->n_ties = n_ties;
    r->peak_rss_mb = (double)mem_rss_peak_bytes() / (1 << 20);

    frame_why(c->f, NULL, "exhaustive is false: not every configuration was evaluated");
}

static void topo_search_close(struct topo_search *c)
{
    plan_tree_result_free(&c->found);
    study_topo_close(&c->topo);
}

static int topo_search_run(struct topo_search *c)
{
    char text[96];

    FRAME_CLOSE(c->f, topo_search_close, c);
    TRY(study_topo_open(&c->topo, &STUDY_TOPO_OPTS, study_machine(c->out)));
    TRY(topo_search_find(c));
    TRY(best_of_all(c, study_kept(c->out)));
    topo_search_report(c);
    study_topo_report(c->out, &c->topo);
    topo_config_print(&c->chosen, text, sizeof(text));
    study_note_text(c->out, "chosen", text);
    study_note_text(c->out, "steps", c->chosen.tree->steps);
    if (c->found.explain)
        study_note_text(c->out, "explain", c->found.explain);
    return OK;
}

STUDY(topo_search, "the search for a phase's cores on a simulated machine",
      .kept_bytes = sizeof(struct cache), .wants_machine = true);
