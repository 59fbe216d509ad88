/* The search for a phase's cores on a simulated machine: what it finds, what it costs,
 * and what is lost when a part of it is left out.   Paper: Sandwich 5.2, 8.4, B, Tables 2 and 4. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/topo.h"

enum { WHOLE, NO_GROUP, NO_REMOVE, NO_PRUNE, NO_HASH, RANDOM, ALL_CORES, EVEN_SPLIT };

struct opts {
    STUDY_TOPO_OPTS
    int phase, method;
    int64_t k;
    bool exhaustive;
};

static const struct opt_row table[] = {
    ROWS_TOPO("kunpeng920x4"),
    OPT_ROW(ENUM, phase, "decode", "Phase whose cores are searched.",
            .values = "prefill|decode"),
    OPT_ROW(ENUM, method, "whole",
            "The whole search, or without one of its parts. random: random "
            "configurations, as many measurements as the whole search. all_cores: one "
            "rank of all cores. even_split: one rank per memory node.",
            .values =
                "whole|no_group|no_remove|no_prune|no_hash|random|all_cores|even_split"),
    OPT_ROW(INT, k, "10",
            "Number of best configurations that are measured again at the end.", .min = 1,
            .max = 1000),
    OPT_ROW(BOOL, exhaustive, "false",
            "Evaluate every configuration as well, to compute gap_frac."),
    {0},
};

static const struct study_metric metrics[] = {
    {"step_s", "s", "lower",
     "time of a step with the chosen configuration, without noise"},
    {"tokens_per_s", "tok/s", "higher", "tokens of a step / step_s"},
    {"gap_frac", "", "lower", "step_s / time of the best of all configurations - 1"},
    {"speedup_vs_all_cores", "x", "higher",
     "time of a step with one rank of all PUs / step_s"},
    {"speedup_vs_even_split", "x", "higher",
     "time of a step with one rank per memory node, all PUs / step_s"},
    {"group_s", "s", "lower",
     "wall time in which group made the trees, part of search_s"},
    {"search_s", "s", "lower",
     "wall time of the search on this host, which only simulates its measurements"},
    {"measuring_s", "s", "lower",
     "time that its measurements would take on the machine itself"},
    {"n_measurements", "", "lower", "measurements of single steps"},
    {"n_configs", "", "", "different configurations measured"},
    {"n_grouped", "", "", "trees that groups make of the fundamental tree"},
    {"n_trees", "", "", "different trees explored"},
    {"n_merged", "", "", "trees reached again and recognised by their hash"},
    {"n_pruned", "", "",
     "trees not transformed further, since no faster than their parent"},
    {"n_removes", "", "", "trees that removes make of the fundamental tree"},
    {"complete", "", "", "1: the search ended by itself; 0: its budget ended it"},
    {"n_ranks", "", "", "ranks of the chosen configuration"},
    {"n_threads", "", "", "threads of each rank"},
    {"n_pus", "", "", "PUs of the fundamental tree"},
    {"kept_frac", "", "", "PUs used / PUs of the fundamental tree"},
    {"latent", "", "", "1: the search claims that a level that no tool reports pays"},
    {"n_ties", "", "",
     "of the k best configurations, those that equal the best within noise"},
    {"peak_rss_mb", "MiB", "lower", "peak resident memory of the process"},
    {0},
};

/* The best step of all configurations, found once for the cells that share it. */
struct cache {
    char key[256];
    double seconds;
};

struct cell {
    struct study_cell *out;
    const struct opts *o;
    struct study_topo topo;
    struct plan_tree_result found; /* empty where nothing was searched */
    struct topo_config chosen;
    double measuring_s, step_s, all_cores_s, even_s, best_s;
};

static int best_of_all(struct cell *w, struct cache *known)
{
    const struct opts *o = w->o;
    struct study_topo_asked asked = {.t = &w->topo, .phase = (enum topo_phase)o->phase};
    struct plan_evaluation e;
    struct simulate_best best;
    char key[256];
    int rc;

    w->best_s = NAN;
    if (!o->exhaustive)
        return OK;
    snprintf(key, sizeof(key), "%s|%s|%s|%d|%d|%lld|%lld", o->machine, o->model, o->fit,
             o->type, o->phase, (long long)o->n_requests, (long long)o->seed);
    if (strcmp(key, known->key) != 0) {
        TRY(study_topo_evaluator(&e, &asked));
        rc = simulate_exhaustive(&best, w->topo.tree, &w->topo.limits, e.measure, e.ctx,
                                 true);
        mem_free(best.tree);
        if (rc != OK)
            return rc;
        known->seconds = best.seconds;
        memcpy(known->key, key, sizeof(key));
    }
    w->best_s = known->seconds;
    return OK;
}

/* A plan that needs no search: a cross-section of the fundamental tree. */
static int cut(struct cell *w, int level, struct topo_config *c, double *seconds)
{
    const struct topo_limits none = {0};

    TRY(topo_config_cut(c, w->topo.tree, level, &none));
    return study_topo_step_s(&w->topo, c, (enum topo_phase)w->o->phase, seconds);
}

static int search_once(struct cell *w, const struct plan_tree_search_opts *s)
{
    struct study_topo_asked asked = {.t = &w->topo,
                                     .phase = (enum topo_phase)w->o->phase,
                                     .seed = (uint64_t)w->o->seed,
                                     .noise = true};
    int rc;

    plan_tree_result_free(&w->found);
    rc = study_topo_find(&w->found, &asked, s);
    w->measuring_s = asked.sum_s;
    return rc;
}

/* A random search may measure as often as the whole one needs. */
static int search(struct cell *w)
{
    const struct opts *o = w->o;
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
        TRY(search_once(w, &s));
        s.max_measurements = w->found.counts.n_measurements;
    }
    s.random = o->method == RANDOM;
    TRY(search_once(w, &s));
    w->chosen = w->found.top[w->found.best].config;
    return OK;
}

static int find(struct cell *w)
{
    struct topo_config all, even;

    TRY(cut(w, 0, &all, &w->all_cores_s));
    TRY(cut(w, study_topo_node_level(w->topo.tree), &even, &w->even_s));
    if (w->o->method == ALL_CORES)
        w->chosen = all;
    else if (w->o->method == EVEN_SPLIT)
        w->chosen = even;
    else
        TRY(search(w));
    return study_topo_step_s(&w->topo, &w->chosen, (enum topo_phase)w->o->phase,
                             &w->step_s);
}

static void report_numbers(const struct cell *w, struct study_cell *out)
{
    const struct plan_tree_search_counts *n = &w->found.counts;
    const struct topo_tree *tree = w->topo.tree;
    double tokens = w->o->phase == TOPO_PREFILL ? w->topo.prompt_tok : 1;
    int n_used = w->chosen.n_ranks * w->chosen.n_threads, n_ties = 0;

    for (int i = 0; i < w->found.n_top; i++)
        n_ties += w->found.top[i].ties;
    const struct study_number all[] = {
        {"step_s", w->step_s},
        {"tokens_per_s", tokens / w->step_s},
        {"gap_frac", w->step_s / w->best_s - 1.0},
        {"speedup_vs_all_cores", w->all_cores_s / w->step_s},
        {"speedup_vs_even_split", w->even_s / w->step_s},
        {"group_s", n->group_s},
        {"search_s", n->wall_s},
        {"measuring_s", w->measuring_s},
        {"n_measurements", (double)n->n_measurements},
        {"n_configs", (double)n->n_configs},
        {"n_grouped", (double)n->n_grouped},
        {"n_trees", (double)n->n_trees},
        {"n_merged", (double)n->n_merged},
        {"n_pruned", (double)n->n_pruned},
        {"n_removes", (double)topo_tree_remove_count(tree)},
        {"complete", w->found.n_top ? n->complete : 1.0},
        {"n_ranks", w->chosen.n_ranks},
        {"n_threads", w->chosen.n_threads},
        {"n_pus", tree->n_pus},
        {"kept_frac", (double)n_used / tree->n_pus},
        {"latent", w->found.latent},
        {"n_ties", n_ties},
        {"peak_rss_mb", (double)mem_rss_peak_bytes() / (1 << 20)}};

    STUDY_VALUES(out, all, "exhaustive is false: not every configuration was evaluated");
    study_evidence(out, "measured", "group_s search_s peak_rss_mb"); /* of this host */
}

static int run(struct cell *w)
{
    const struct opts *o = w->o;
    char text[96];

    TRY(study_topo_open(&w->topo, &o->topo, study_machine(w->out)));
    TRY(find(w));
    TRY(best_of_all(w, study_kept(w->out)));
    report_numbers(w, w->out);
    study_topo_report(w->out, &w->topo);
    topo_config_print(&w->chosen, text, sizeof(text));
    study_note_text(w->out, "chosen", text);
    study_note_text(w->out, "steps", w->chosen.tree->steps);
    if (w->found.explain)
        study_note_text(w->out, "explain", w->found.explain);
    return OK;
}

static void end(struct cell *w)
{
    plan_tree_result_free(&w->found);
    study_topo_close(&w->topo);
}

STUDY(topo_search, "the search for a phase's cores on a simulated machine",
      .kept_bytes = sizeof(struct cache), .wants_machine = true);
