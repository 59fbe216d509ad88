/* The search for a phase's cores on a simulated machine: what it finds, what it costs,
 * and what is lost when a part of it is left out.   Paper: Sandwich 5.2, Tables 2, 4. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "experiments/study/support/topo.h"

enum { WHOLE, NO_GROUP, NO_REMOVE, NO_PRUNE, NO_HASH, RANDOM, ALL_CORES, EVEN_SPLIT };

struct opts {
    STUDY_TOPO_OPTS
    int phase, method;
    int64_t k, max_measurements;
    double max_s;
    bool exhaustive;
};

static const struct opt_row table[] = {
    ROWS_TOPO("kunpeng920x4", "sheared-llama-1.3b"),
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
    OPT_ROW(INT, max_measurements, "0", "Largest number of measurements. 0: no limit."),
    OPT_ROW(F64, max_s, "60", "Time limit of the search.", .unit = "s", .min = 0,
            .max = 3600),
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
    {"search_s", "s", "lower", "wall time of the search"},
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
struct known {
    char key[256];
    double seconds;
};

static int best_of_all(const struct study_topo *t, const struct opts *o,
                       struct known *known, double *seconds)
{
    struct study_topo_asked asked = {.t = t, .phase = (enum topo_phase)o->phase};
    struct plan_evaluation e;
    struct simulate_best best;
    char key[256];
    int rc;

    *seconds = NAN;
    if (!o->exhaustive)
        return OK;
    snprintf(key, sizeof(key), "%s|%s|%s|%d|%d|%d|%d|%lld|%lld|%lld", o->machine,
             o->model, o->fit, o->type, o->hide, o->phase, o->strict_tp,
             (long long)o->n_requests, (long long)o->batch, (long long)o->seed);
    if (strcmp(key, known->key) != 0) {
        study_topo_evaluator(&e, &asked);
        rc = simulate_exhaustive(&best, t->tree, &t->limits, e.measure, e.ctx, true);
        mem_free(best.tree);
        if (rc != OK)
            return rc;
        known->seconds = best.seconds;
        memcpy(known->key, key, sizeof(key));
    }
    *seconds = known->seconds;
    return OK;
}

static int search_opts(struct plan_tree_search_opts *s, const struct opts *o)
{
    int rc = opt_init(plan_tree_search_opt_table, s);

    s->k = o->k;
    s->max_measurements = o->max_measurements;
    s->max_s = o->max_s;
    s->seed = o->seed;
    s->group = o->method != NO_GROUP;
    s->remove = o->method != NO_REMOVE;
    s->prune = o->method != NO_PRUNE;
    s->hash = o->method != NO_HASH;
    s->random = o->method == RANDOM;
    return rc;
}

/* Plans that need no search: a cross-section of the fundamental tree. */
static int fixed(const struct study_topo *t, const struct opts *o, int level,
                 struct topo_config *c, double *seconds)
{
    struct topo_limits none = {0};
    int rc = topo_config_cut(c, t->tree, level, &none);

    return rc == OK ? study_topo_step_s(t, c, (enum topo_phase)o->phase, seconds) : rc;
}

struct outcome {
    struct plan_tree_found found; /* empty where nothing was searched */
    struct topo_config chosen;
    double measuring_s, step_s, all_cores_s, even_s, best_s;
};

static int search_once(const struct study_topo *t, const struct opts *o,
                       const struct plan_tree_search_opts *s, struct outcome *out)
{
    struct study_topo_asked asked = {.t = t,
                                     .phase = (enum topo_phase)o->phase,
                                     .seed = (uint64_t)o->seed,
                                     .noise = true};
    struct plan_evaluation e;
    int rc;

    study_topo_evaluator(&e, &asked);
    rc = plan_tree_search(&out->found, t->tree, &t->limits, &e, s);
    out->measuring_s = asked.sum_s;
    return rc;
}

/* A random search may measure as often as the whole one needs. */
static int search(const struct study_topo *t, const struct opts *o, struct outcome *out)
{
    struct plan_tree_search_opts s;
    int rc = search_opts(&s, o);

    if (rc == OK && o->method == RANDOM && !s.max_measurements) {
        s.random = false;
        rc = search_once(t, o, &s, out);
        s.random = true;
        s.max_measurements = out->found.counts.n_measurements;
        plan_tree_found_free(&out->found);
    }
    if (rc == OK)
        rc = search_once(t, o, &s, out);
    if (rc == OK)
        out->chosen = out->found.top[out->found.best].config;
    return rc;
}

static int find(const struct study_topo *t, const struct opts *o, struct known *known,
                struct outcome *out)
{
    struct topo_config all, even;
    int rc = fixed(t, o, 0, &all, &out->all_cores_s);

    if (rc == OK)
        rc = fixed(t, o, study_topo_node_level(t->tree), &even, &out->even_s);
    if (rc != OK)
        return rc;
    if (o->method == ALL_CORES || o->method == EVEN_SPLIT)
        out->chosen = o->method == ALL_CORES ? all : even;
    else
        rc = search(t, o, out);
    if (rc == OK)
        rc = study_topo_step_s(t, &out->chosen, (enum topo_phase)o->phase, &out->step_s);
    return rc == OK ? best_of_all(t, o, known, &out->best_s) : rc;
}

static void report_numbers(const struct study_topo *t, const struct opts *o,
                           const struct outcome *f, struct study_cell *out)
{
    const struct plan_tree_search_counts *n = &f->found.counts;
    double tokens = o->phase == TOPO_PREFILL ? t->prompt_tok : (double)o->batch;
    int n_used = f->chosen.n_ranks * f->chosen.n_threads, n_ties = 0;

    for (int i = 0; i < f->found.n_top; i++)
        n_ties += f->found.top[i].ties;
    const struct study_number all[] = {
        {"step_s", f->step_s},
        {"tokens_per_s", tokens / f->step_s},
        {"gap_frac", f->step_s / f->best_s - 1.0},
        {"speedup_vs_all_cores", f->all_cores_s / f->step_s},
        {"speedup_vs_even_split", f->even_s / f->step_s},
        {"search_s", n->wall_s},
        {"measuring_s", f->measuring_s},
        {"n_measurements", (double)n->n_measurements},
        {"n_configs", (double)n->n_configs},
        {"n_grouped", (double)n->n_grouped},
        {"n_trees", (double)n->n_trees},
        {"n_merged", (double)n->n_merged},
        {"n_pruned", (double)n->n_pruned},
        {"n_removes", (double)topo_tree_remove_count(t->tree)},
        {"complete", f->found.n_top ? n->complete : 1.0},
        {"n_ranks", f->chosen.n_ranks},
        {"n_threads", f->chosen.n_threads},
        {"n_pus", t->tree->n_pus},
        {"kept_frac", (double)n_used / t->tree->n_pus},
        {"latent", f->found.latent},
        {"n_ties", n_ties},
        {"peak_rss_mb", (double)mem_rss_peak_bytes() / (1 << 20)}};

    STUDY_VALUES(out, all, "not every one was looked at");
}

static void report_words(const struct study_topo *t, const struct outcome *f,
                         struct study_cell *out)
{
    char text[96];

    study_topo_report(out, t);
    topo_config_print(&f->chosen, text, sizeof(text));
    study_note_text(out, "chosen", text);
    study_note_text(out, "steps", f->chosen.tree->steps);
    if (f->found.explain)
        study_note_text(out, "explain", f->found.explain);
}

static int run(const void *opts, struct study_cell *out)
{
    const struct opts *o = opts;
    struct outcome f;
    struct study_topo t;
    int rc;

    memset(&f, 0, sizeof(f));
    rc = study_topo_open(&t, &o->topo, study_machine(out));
    if (rc == OK)
        rc = find(&t, o, study_kept(out), &f);
    if (rc == OK) {
        report_numbers(&t, o, &f, out);
        report_words(&t, &f, out);
    }
    plan_tree_found_free(&f.found);
    study_topo_close(&t);
    return rc;
}

const struct study study_topo_search = {
    .name = "topo_search",
    .help = "the search for a phase's cores on a simulated machine",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .kept_bytes = sizeof(struct known),
    .metrics = metrics,
    .wants_machine = true,
    .run = run,
};
