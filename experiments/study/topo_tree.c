/* A TopoTree after some transformations, and its cross-sections: what the figures of the
 * paper draw.   Paper: Sandwich 5.1-5.3, Figs. 5 and 6. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/topo.h"

#define OPTIONS(X)                                                                       \
    OPTIONS_TOPO(X, "kunpeng920x4")                                                      \
    X(STR, steps, "",                                                                    \
      "Transformations of the fundamental tree, or \"found\": those that the search "    \
      "finds for decode on the simulated machine. Example: \"group(4,1,3) "              \
      "remove(1,4)\"")                                                                   \
    X(STR, sections, "", "Cross-sections to look for in the tree. Example: \"8x18 48x3\"")

#define RESULTS(X)                                                                       \
    X(n_levels, "", 0, "levels of the tree, machine and PUs included")                   \
    X(n_pus, "", 0, "PUs that the tree keeps")                                           \
    X(n_grouped, "", 0, "trees that groups make of this one, itself included")           \
    X(n_removes, "", 0, "trees that removes make of this one, itself included")          \
    X(n_configs, "", 0, "cross-sections that the model's operators allow")               \
    X(n_configs_strict, "", 0, "those whose number of ranks divides the heads")          \
    X(n_sections, "", HIGHER, "those of `sections` that the tree has")

FRAME_TYPES;

struct tree_sections {
    FRAME_CELL;
    struct study_topo topo;
    struct topo_tree *tree;
};

struct sections {
    double ranks[TOPO_LEVELS_MAX], threads[TOPO_LEVELS_MAX], attention[TOPO_LEVELS_MAX],
        ffn[TOPO_LEVELS_MAX], strict[TOPO_LEVELS_MAX];
    int n_allowed, n_strict;
};

static void cut_all(struct sections *s, const struct study_topo *t,
                    const struct topo_tree *tree)
{
    struct topo_limits strict = t->limits;
    struct topo_config c;

    strict.strict = true;
    for (int l = 0; l < tree->n_levels; l++) {
        bool allowed = topo_config_cut(&c, tree, l, &t->limits) == OK;

        s->ranks[l] = topo_tree_n_nodes(tree, l);
        s->threads[l] = topo_tree_span(tree, l);
        s->attention[l] = allowed ? c.attention_imbalance : 0;
        s->ffn[l] = allowed ? c.ffn_imbalance : 0;
        s->strict[l] = topo_config_cut(&c, tree, l, &strict) == OK;
        s->n_allowed += allowed;
        s->n_strict += s->strict[l] != 0;
    }
}

/* How many of "RANKSxTHREADS ..." are among the cross-sections. */
static int count_sections(int *found, const struct sections *s, int n, const char *wanted)
{
    *found = 0;
    for (wanted += strspn(wanted, " "); *wanted; wanted += strspn(wanted, " ")) {
        int ranks, threads, end = 0;

        if (sscanf(wanted, "%dx%d%n", &ranks, &threads, &end) != 2 ||
            (wanted[end] && wanted[end] != ' '))
            return err_set(
                ERR_ARG, "study.sections: expected RANKSxTHREADS, found \"%s\"", wanted);
        for (int l = 0; l < n; l++)
            *found += s->ranks[l] == ranks && s->threads[l] == threads;
        wanted += end;
    }
    return OK;
}

static int tree_sections_report(struct tree_sections *c)
{
    const struct topo_tree *tree = c->tree;
    const char *wanted = c->o->sections;
    struct study_cell *out = c->out;
    struct results *r = c->r;
    struct sections s = {.n_allowed = 0};
    size_t n = (size_t)tree->n_levels;
    char *text = NULL;
    int n_sections;

    cut_all(&s, &c->topo, tree);
    TRY(count_sections(&n_sections, &s, tree->n_levels, wanted ? wanted : ""));
    r->n_levels = tree->n_levels;
    r->n_pus = tree->n_pus;
    r->n_grouped = (double)topo_tree_closure_count(tree);
    r->n_removes = (double)topo_tree_remove_count(tree);
    r->n_configs = s.n_allowed;
    r->n_configs_strict = s.n_strict;
    r->n_sections = n_sections;

    study_topo_report_tree(out, tree);
    study_series(out, "section_ranks", "", s.ranks, n);
    study_series(out, "section_threads", "", s.threads, n);
    study_series(out, "attention_imbalance", "", s.attention, n);
    study_series(out, "ffn_imbalance", "", s.ffn, n);
    study_series(out, "allowed_strictly", "", s.strict, n);
    study_note_text(out, "after", topo_tree_text(tree, &text) == OK ? text : NULL);
    mem_free(text);
    study_note_text(out, "steps", tree->steps);
    return OK;
}

/* The tree of the plan that the search finds from noisy times. */
static int tree_sections_find(struct tree_sections *c)
{
    struct study_topo_asked asked = {
        .t = &c->topo, .phase = TOPO_DECODE, .seed = (uint64_t)c->o->seed, .noise = true};
    struct plan_tree_result found;
    struct plan_tree_search_opts s;
    int rc;

    TRY(opt_init(plan_tree_search_opt_table, &s));
    s.seed = c->o->seed;
    s.max_s = 0; /* the tree must not depend on how busy this host is */
    s.uneven = false;
    TRY(study_topo_find(&found, &asked, &s));
    rc = topo_tree_copy(&c->tree, found.top[found.best].tree);
    plan_tree_result_free(&found);
    return rc;
}

static void tree_sections_close(struct tree_sections *c)
{
    mem_free(c->tree);
    study_topo_close(&c->topo);
}

static int tree_sections_run(struct tree_sections *c)
{
    const char *steps = c->o->steps;

    FRAME_CLOSE(c->f, tree_sections_close, c);
    TRY(study_topo_open(&c->topo, &STUDY_TOPO_OPTS, NULL));
    TRY(strcmp(steps, "found") == 0 ? tree_sections_find(c)
                                    : study_topo_steps(&c->tree, c->topo.tree, steps));
    TRY(tree_sections_report(c));
    study_topo_report(c->out, &c->topo);
    return OK;
}

STUDY_NAMED(topo_tree, tree_sections,
            "a TopoTree after some transformations, and its cross-sections");
