/* One way to use a simulated machine's cores, priced: which cores are left out, and how
 * many ranks share the rest.   Paper: Sandwich 3.3, Fig. 3. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/cpu.h"
#include "experiments/study/support/topo.h"

struct opts {
    STUDY_TOPO_OPTS
    char *plan;
    int64_t ranks;
};

static const struct opt_row table[] = {
    ROWS_TOPO("kunpeng920x4"),
    OPT_ROW(STR, plan, "all",
            "NAME, or NAME@NODES for some memory nodes, then transformations of their "
            "fundamental tree. Example: \"fast@0,2,4,6 group(4,1,3) remove(1,4)\""),
    OPT_ROW(INT, ranks, "0", "Number of ranks. 0: one per memory node.", .min = 0,
            .max = 100000),
    {0},
};

static const struct study_metric metrics[] = {
    {"request_s", "s", "lower",
     "time of a request of the trace: its prompt, then its output"},
    {"prefill_s", "s", "lower", "mean prefill time of the trace's prompts"},
    {"decode_s", "s", "lower", "time of a token at the trace's mean context"},
    {"stream_gbps", "GB/s", "higher",
     "local bandwidth of the first memory node used, n x slowest thread (static shares)"},
    {"n_ranks", "", "", "ranks of the plan"},
    {"n_threads", "", "", "threads of each rank"},
    {"kept_frac", "", "", "PUs used / PUs of the machine"},
    {0},
};

struct work {
    struct study_topo topo;
    struct topo_tree *tree;
    int *cpus; /* of the machine or of some of its nodes */
};

/* The tree over some of the memory nodes only. */
static int narrow(struct work *w, const char *nodes_text)
{
    const struct topo_machine *m = w->topo.machine;
    struct topo_tree_opts o = {.cpus = w->cpus};
    int nodes[CPU_MAX], n_nodes;

    TRY(cpu_list_parse(nodes_text, nodes, CPU_MAX, &n_nodes));
    for (int i = 0; i < m->n_pus; i++)
        for (int k = 0; k < n_nodes; k++)
            if (m->pus[i].node == nodes[k])
                w->cpus[o.n_cpus++] = m->pus[i].os_index;
    mem_free(w->topo.tree);
    w->topo.tree = NULL;
    return topo_tree_open(&w->topo.tree, m, &o, w->topo.note, sizeof(w->topo.note));
}

/* "NAME@NODES STEPS". */
static int plan_tree(struct work *w, const char *plan)
{
    size_t name = strcspn(plan, " ");
    const char *at = memchr(plan, '@', name);
    char nodes[256];

    if (at) {
        snprintf(nodes, sizeof(nodes), "%.*s", (int)(plan + name - at - 1), at + 1);
        TRY(narrow(w, nodes));
    }
    return study_topo_steps(&w->tree, w->topo.tree, plan + name);
}

/* Cut w->tree at a level of exactly `ranks` nodes: where there is none, a level of groups
 * of neighbours is put in. */
static int cut(struct topo_config *out, struct work *w, int ranks, bool strict)
{
    const struct topo_limits none = {0};
    struct topo_tree *grouped = NULL;
    int level = study_topo_level(w->tree, ranks);
    int n = topo_tree_n_nodes(w->tree, level), arity = w->tree->levels[level].arity;

    if (n != ranks) {
        if (arity * n % ranks)
            return err_set(ERR_ARG,
                           "ranks: %d do not share %d nodes of %d children evenly", ranks,
                           n, arity);
        TRY(topo_tree_group(&grouped, w->tree, arity * n / ranks, 1, ++level));
        mem_free(w->tree);
        w->tree = grouped;
    }
    return topo_config_cut(out, w->tree, level, strict ? &w->topo.limits : &none);
}

/* Local bandwidth of the node of the tree's first PU. */
static int stream(struct work *w, double *gbps)
{
    const struct topo_pu *all = w->topo.machine->pus;
    int n = 0;

    for (int i = 0; i < w->tree->n_pus; i++)
        if (all[w->tree->pus[i]].node == all[w->tree->pus[0]].node)
            w->cpus[n++] = w->tree->pus[i];
    return simulate_stream_gbps(w->topo.sim, w->cpus, n, gbps);
}

static int run(void *context, const void *opts, struct study_cell *out)
{
    const struct opts *o = opts;
    struct work *w = context;
    struct topo_config c;
    double prefill_s, decode_s, request_s, gbps;
    char text[96];

    TRY(study_topo_open(&w->topo, &o->topo, NULL));
    w->cpus = mem_new(MEM_OTHER, (size_t)w->topo.machine->n_pus, sizeof(*w->cpus));
    if (!w->cpus)
        return ERR_NOMEM;
    TRY(plan_tree(w, o->plan));
    TRY(cut(&c, w,
            o->ranks ? (int)o->ranks
                     : topo_tree_n_nodes(w->tree, study_topo_node_level(w->tree)),
            o->strict_tp));
    TRY(study_topo_step_s(&w->topo, &c, TOPO_PREFILL, &prefill_s));
    TRY(study_topo_step_s(&w->topo, &c, TOPO_DECODE, &decode_s));
    TRY(study_topo_request_s(&w->topo, &c, &c, &request_s));
    TRY(stream(w, &gbps));
    const struct study_number all[] = {
        {"request_s", request_s},
        {"prefill_s", prefill_s},
        {"decode_s", decode_s},
        {"stream_gbps", gbps},
        {"n_ranks", c.n_ranks},
        {"n_threads", c.n_threads},
        {"kept_frac", (double)w->tree->n_pus / w->topo.machine->n_pus}};

    STUDY_VALUES(out, all, "no number");
    topo_config_print(&c, text, sizeof(text));
    study_note_text(out, "configuration", text);
    study_topo_report(out, &w->topo);
    return OK;
}

static void end(void *context)
{
    struct work *w = context;

    mem_free(w->cpus);
    mem_free(w->tree);
    study_topo_close(&w->topo);
}

const struct study study_topo_plan = {
    .name = "topo_plan",
    .help = "one way to use a simulated machine's cores, priced",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .context_bytes = sizeof(struct work),
    .metrics = metrics,
    .run = run,
    .end = end,
};
