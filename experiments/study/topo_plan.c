/* One way to use a simulated machine's cores, priced: which cores are left out, and how
 * many ranks share the rest.   Paper: Sandwich 3.1, Fig. 3. */
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
    ROWS_TOPO("kunpeng920x4", "sheared-llama-1.3b"),
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

/* The tree over some of the memory nodes only. */
static int narrow(struct study_topo *t, const char *nodes_text)
{
    const struct topo_machine *m = t->machine;
    int nodes[CPU_MAX], n_nodes, n = 0, rc;
    int *cpus = mem_new(MEM_OTHER, (size_t)m->n_pus, sizeof(*cpus));
    struct topo_tree *tree = NULL;

    rc = cpus ? cpu_list_parse(nodes_text, nodes, CPU_MAX, &n_nodes) : ERR_NOMEM;
    for (int i = 0; rc == OK && i < m->n_pus; i++)
        for (int k = 0; k < n_nodes; k++)
            if (m->pus[i].node == nodes[k])
                cpus[n++] = m->pus[i].os_index;
    if (rc == OK)
        rc = topo_tree_open(&tree, m, &(struct topo_tree_opts){.cpus = cpus, .n_cpus = n},
                            t->note, sizeof(t->note));
    if (rc == OK) {
        mem_free(t->tree);
        t->tree = tree;
    }
    mem_free(cpus);
    return rc;
}

/* "NAME@NODES STEPS". */
static int plan_tree(struct study_topo *t, const char *plan, struct topo_tree **out)
{
    size_t name = strcspn(plan, " ");
    const char *at = memchr(plan, '@', name);
    char nodes[256];
    int rc = OK;

    if (at) {
        snprintf(nodes, sizeof(nodes), "%.*s", (int)(plan + name - at - 1), at + 1);
        rc = narrow(t, nodes);
    }
    return rc == OK ? study_topo_steps(out, t->tree, plan + name) : rc;
}

/* A tree with a level of exactly so many nodes: where there is none, a level of groups of
 * neighbours is put in. */
static int with_ranks(struct topo_tree **t, int ranks, int *level)
{
    struct topo_tree *grouped = NULL;
    int above = study_topo_level(*t, ranks), nodes = topo_tree_n_nodes(*t, above), each;
    int rc;

    *level = above;
    if (nodes == ranks)
        return OK;
    each = (*t)->levels[above].arity * nodes / ranks;
    if (each * ranks != (*t)->levels[above].arity * nodes)
        return err_set(ERR_ARG, "ranks: %d do not share %d nodes of %d children evenly",
                       ranks, nodes, (*t)->levels[above].arity);
    rc = topo_tree_group(&grouped, *t, each, 1, above + 1);
    if (rc == OK) {
        mem_free(*t);
        *t = grouped;
        *level = above + 1;
    }
    return rc;
}

static int stream(const struct study_topo *t, const struct topo_tree *tree, double *gbps)
{
    int node = t->machine->pus[tree->pus[0]].node, n = 0, rc;
    int *pus = mem_new(MEM_OTHER, (size_t)tree->n_pus, sizeof(*pus));

    if (!pus)
        return ERR_NOMEM;
    for (int i = 0; i < tree->n_pus; i++)
        if (t->machine->pus[tree->pus[i]].node == node)
            pus[n++] = tree->pus[i];
    rc = simulate_stream_gbps(t->sim, pus, n, gbps);
    mem_free(pus);
    return rc;
}

static int price(const struct study_topo *t, const struct opts *o,
                 struct topo_tree **tree, struct study_cell *out)
{
    const struct topo_limits none = {0};
    struct topo_config c;
    double prefill_s, decode_s, request_s, gbps;
    char text[96];
    int level, rc;

    rc = with_ranks(tree,
                    o->ranks ? (int)o->ranks
                             : topo_tree_n_nodes(*tree, study_topo_node_level(*tree)),
                    &level);
    if (rc == OK)
        rc = topo_config_cut(&c, *tree, level, o->strict_tp ? &t->limits : &none);
    if (rc == OK)
        rc = study_topo_step_s(t, &c, TOPO_PREFILL, &prefill_s);
    if (rc == OK)
        rc = study_topo_step_s(t, &c, TOPO_DECODE, &decode_s);
    if (rc == OK)
        rc = study_topo_request_s(t, &c, &c, &request_s);
    if (rc == OK)
        rc = stream(t, *tree, &gbps);
    if (rc != OK)
        return rc;
    topo_config_print(&c, text, sizeof(text));
    const struct study_number all[] = {
        {"request_s", request_s},
        {"prefill_s", prefill_s},
        {"decode_s", decode_s},
        {"stream_gbps", gbps},
        {"n_ranks", c.n_ranks},
        {"n_threads", c.n_threads},
        {"kept_frac", (double)(*tree)->n_pus / t->machine->n_pus}};

    STUDY_VALUES(out, all, "no number");
    study_note_text(out, "configuration", text);
    return OK;
}

static int run(const void *opts, struct study_cell *out)
{
    const struct opts *o = opts;
    struct study_topo t;
    struct topo_tree *tree = NULL;
    int rc = study_topo_open(&t, &o->topo, study_machine(out));

    if (rc == OK)
        rc = plan_tree(&t, o->plan, &tree);
    if (rc == OK)
        rc = price(&t, o, &tree, out);
    if (rc == OK)
        study_topo_report(out, &t);
    mem_free(tree);
    study_topo_close(&t);
    return rc;
}

const struct study study_topo_plan = {
    .name = "topo_plan",
    .help = "one way to use a simulated machine's cores, priced",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .metrics = metrics,
    .run = run,
};
