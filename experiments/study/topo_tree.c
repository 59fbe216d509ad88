/* A TopoTree after some transformations, and its cross-sections: what the figures of the
 * paper draw.   Paper: Sandwich 5.1-5.3, Figs. 5 and 6. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/topo.h"

struct opts {
    STUDY_TOPO_OPTS
    char *steps, *sections;
};

static const struct opt_row table[] = {
    ROWS_TOPO("kunpeng920x4"),
    OPT_ROW(STR, steps, "",
            "Transformations of the fundamental tree, or \"found\": those that the "
            "search finds "
            "for decode on the simulated machine. Example: \"group(4,1,3) remove(1,4)\""),
    OPT_ROW(STR, sections, "",
            "Cross-sections to look for in the tree. Example: \"8x18 48x3\""),
    {0},
};

static const struct study_metric metrics[] = {
    {"n_levels", "", "", "levels of the tree, machine and PUs included"},
    {"n_pus", "", "", "PUs that the tree keeps"},
    {"n_grouped", "", "", "trees that groups make of this one, itself included"},
    {"n_removes", "", "", "trees that removes make of this one, itself included"},
    {"n_configs", "", "", "cross-sections that the model's operators allow"},
    {"n_configs_strict", "", "", "those whose number of ranks divides the heads"},
    {"n_sections", "", "higher", "those of `sections` that the tree has"},
    {0},
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

static int report(const struct study_topo *t, const struct topo_tree *tree,
                  const char *wanted, struct study_cell *out)
{
    struct sections s = {.n_allowed = 0};
    size_t n = (size_t)tree->n_levels;
    char *text = NULL;
    int n_sections;

    cut_all(&s, t, tree);
    TRY(count_sections(&n_sections, &s, tree->n_levels, wanted ? wanted : ""));
    const struct study_number all[] = {
        {"n_levels", tree->n_levels},
        {"n_pus", tree->n_pus},
        {"n_grouped", (double)topo_tree_closure_count(tree)},
        {"n_removes", (double)topo_tree_remove_count(tree)},
        {"n_configs", s.n_allowed},
        {"n_configs_strict", s.n_strict},
        {"n_sections", n_sections}};

    study_topo_report_tree(out, tree);
    study_series(out, "section_ranks", "", s.ranks, n);
    study_series(out, "section_threads", "", s.threads, n);
    study_series(out, "attention_imbalance", "", s.attention, n);
    study_series(out, "ffn_imbalance", "", s.ffn, n);
    study_series(out, "allowed_strictly", "", s.strict, n);
    STUDY_VALUES(out, all, "no number");
    study_note_text(out, "after", topo_tree_text(tree, &text) == OK ? text : NULL);
    mem_free(text);
    study_note_text(out, "steps", tree->steps);
    return OK;
}

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_topo topo;
    struct topo_tree *tree;
};

/* The tree of the plan that the search finds from noisy times. */
static int find(struct cell *w)
{
    struct study_topo_asked asked = {
        .t = &w->topo, .phase = TOPO_DECODE, .seed = (uint64_t)w->o->seed, .noise = true};
    struct plan_tree_result found;
    struct plan_tree_search_opts s;
    int rc;

    TRY(opt_init(plan_tree_search_opt_table, &s));
    s.seed = w->o->seed;
    s.max_s = 0; /* the tree must not depend on how busy this host is */
    s.uneven = false;
    TRY(study_topo_find(&found, &asked, &s));
    rc = topo_tree_copy(&w->tree, found.top[found.best].tree);
    plan_tree_result_free(&found);
    return rc;
}

static int run(struct cell *w)
{
    const struct opts *o = w->o;

    TRY(study_topo_open(&w->topo, &o->topo, NULL));
    TRY(strcmp(o->steps, "found") == 0
            ? find(w)
            : study_topo_steps(&w->tree, w->topo.tree, o->steps));
    TRY(report(&w->topo, w->tree, o->sections, w->out));
    study_topo_report(w->out, &w->topo);
    return OK;
}

static void end(struct cell *w)
{
    mem_free(w->tree);
    study_topo_close(&w->topo);
}

STUDY(topo_tree, "a TopoTree after some transformations, and its cross-sections");
