/* One way to use a simulated machine's cores, priced: which cores are left out, and how
 * many ranks share the rest. Where the machine's rates were fitted, the price has the fit's
 * uncertainty.   Paper: Sandwich 3.3, Fig. 3. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats_interval.h"
#include "cpu/cpu.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/topo.h"
#include "simulate/stream_fit.h"

#define ALTERNATIVES_MAX 8

#define OPTIONS(X)                                                                       \
    OPTIONS_TOPO(X, "kunpeng920x4")                                                      \
    X(STR, plan, "all",                                                                  \
      "NAME, or NAME@NODES for some memory nodes, then transformations of their "        \
      "fundamental tree. Example: \"fast@0,2,4,6 group(4,1,3) remove(1,4)\"")            \
    X(INT, ranks, "0", "Number of ranks. 0: one per memory node.", .min = 0,             \
      .max = 100000)                                                                     \
    X(BOOL, equal_nodes, "false",                                                        \
      "All memory nodes are equally fast: which are slow is an assumption.")             \
    X(INT, n_bootstrap, "0",                                                             \
      "Price the plan with N bootstrapped fits of the machine's rates, too. Only "       \
      "kunpeng920x4 has the measurements.",                                              \
      .min = 0, .max = 100000)                                                           \
    X(STR, alternatives, "",                                                             \
      "Plans, separated by |, among which p_best says how often this one is fastest.")

#define RESULTS(X)                                                                       \
    X(request_s, "s", LOWER,                                                             \
      "time of a request of the trace: its prompt, then its output; its interval is "    \
      "the "                                                                             \
      "bootstrap's")                                                                     \
    X(p_best, "", HIGHER,                                                                \
      "share of the bootstrapped fits with which no alternative has a shorter request")  \
    X(prefill_s, "s", LOWER, "mean prefill time of the trace's prompts")                 \
    X(decode_s, "s", LOWER, "time of a token at the trace's mean context")               \
    X(stream_gbps, "GB/s", HIGHER,                                                       \
      "local bandwidth of the first memory node used, n x slowest thread (static "       \
      "shares)")                                                                         \
    X(n_ranks, "", 0, "ranks of the plan")                                               \
    X(n_threads, "", 0, "threads of each rank")                                          \
    X(kept_frac, "", 0, "PUs used / PUs of the machine")

FRAME_TYPES;

struct plan {
    struct topo_tree *tree; /* owned */
    struct topo_config c;
};

struct topo_plan {
    FRAME_CELL;
    struct study_topo topo;
    struct plan plan, alternatives[ALTERNATIVES_MAX];
    int n_alternatives;
    double *draws; /* [n_bootstrap] request_s */
};

/* --- a plan */

/* The tree over some of the memory nodes only. */
static int open_nodes(struct topo_tree **out, const struct topo_machine *m,
                      const char *nodes_text)
{
    struct topo_tree_opts o = {0};
    int nodes[CPU_MAX], n_nodes, *cpus, rc;

    TRY(cpu_list_parse(nodes_text, nodes, CPU_MAX, &n_nodes));
    o.cpus = cpus = mem_new(MEM_OTHER, (size_t)m->n_pus, sizeof(*cpus));
    for (int i = 0; i < m->n_pus; i++)
        for (int k = 0; k < n_nodes; k++)
            if (m->pus[i].node == nodes[k])
                cpus[o.n_cpus++] = m->pus[i].os_index;
    rc = topo_tree_open(out, m, &o, NULL, 0);
    mem_free(cpus);
    return rc;
}

/* "NAME@NODES STEPS", of n characters. */
static int open_tree(struct topo_tree **out, const struct study_topo *t, const char *text,
                     size_t n)
{
    size_t name = strcspn(text, " |");
    const char *at = memchr(text, '@', name);
    struct topo_tree *some = NULL;
    char nodes[256], steps[256];
    int rc = OK;

    snprintf(steps, sizeof(steps), "%.*s", (int)(n - name), text + name);
    if (at) {
        snprintf(nodes, sizeof(nodes), "%.*s", (int)(text + name - at - 1), at + 1);
        rc = open_nodes(&some, t->machine, nodes);
    }
    if (rc == OK)
        rc = study_topo_steps(out, some ? some : t->tree, steps);
    mem_free(some);
    return rc;
}

/* Cut the tree at a level of exactly `ranks` nodes: where there is none, a level of groups
 * of neighbours is put in. */
static int cut(struct plan *p, int ranks)
{
    static const struct topo_limits none;
    struct topo_tree *grouped = NULL;
    int level = study_topo_level(p->tree, ranks);
    int n = topo_tree_n_nodes(p->tree, level), arity = p->tree->levels[level].arity;

    if (n != ranks) {
        if (arity * n % ranks)
            return err_set(ERR_ARG,
                           "ranks: %d do not share %d nodes of %d children evenly", ranks,
                           n, arity);
        TRY(topo_tree_group(&grouped, p->tree, arity * n / ranks, 1, ++level));
        mem_free(p->tree);
        p->tree = grouped;
    }
    return topo_config_cut(&p->c, p->tree, level, &none);
}

static int open_plan(struct plan *out, const struct study_topo *t, const struct opts *o,
                     const char *text, size_t n)
{
    TRY(open_tree(&out->tree, t, text, n));
    return cut(out, o->ranks
                        ? (int)o->ranks
                        : topo_tree_n_nodes(out->tree, study_topo_node_level(out->tree)));
}

static int open_alternatives(struct topo_plan *c, const struct opts *o)
{
    for (const char *at = o->alternatives ? o->alternatives : ""; *at;) {
        size_t n = strcspn(at, "|");

        if (c->n_alternatives == ALTERNATIVES_MAX)
            return err_set(ERR_LIMIT, "study.alternatives: more than %d plans",
                           ALTERNATIVES_MAX);
        TRY(open_plan(&c->alternatives[c->n_alternatives++], &c->topo, o, at, n));
        at += n + (at[n] == '|');
    }
    return OK;
}

/* --- how certain its price is */

/* The request of every plan with other rates of the machine. */
static int draw_once(struct topo_plan *c, const struct simulate_machine_params *params,
                     double *own, double *best)
{
    struct study_topo t = c->topo; /* lends everything but the simulator */
    double seconds;
    int rc;

    t.sim = NULL;
    TRY(simulate_machine_new(&t.sim, t.machine, params));
    rc = study_topo_request_s(&t, &c->plan.c, &c->plan.c, own);
    *best = *own;
    for (int i = 0; rc == OK && i < c->n_alternatives; i++) {
        rc = study_topo_request_s(&t, &c->alternatives[i].c, &c->alternatives[i].c,
                                  &seconds);
        if (rc == OK)
            *best = fmin(*best, seconds);
    }
    simulate_machine_close(&t.sim);
    return rc;
}

/* The fits, which all plans of an experiment share. */
struct fits {
    int64_t seed, n;
    struct simulate_machine_params *fits; /* [n] */
};

static void forget(void *kept)
{
    struct fits *k = kept;

    mem_free(k->fits);
    *k = (struct fits){0};
}

static int recall(struct fits *k, const struct topo_plan *c, const struct opts *o)
{
    struct simulate_machine_params fitted = *simulate_params(c->topo.sim);

    if (k->seed == o->seed && k->n == o->n_bootstrap)
        return OK;
    forget(k);
    k->fits = mem_new(MEM_OTHER, (size_t)o->n_bootstrap, sizeof(*k->fits));
    simulate_stream_fit(&fitted, simulate_stream_kunpeng, SIMULATE_STREAM_KUNPENG_N);
    for (int i = 0; i < o->n_bootstrap; i++)
        simulate_stream_bootstrap(&k->fits[i], &fitted, simulate_stream_kunpeng,
                                  SIMULATE_STREAM_KUNPENG_N, (uint64_t)o->seed, i);
    k->seed = o->seed;
    k->n = o->n_bootstrap;
    return OK;
}

static int bootstrap(struct topo_plan *c, struct fits *k)
{
    const struct opts *o = c->o;
    const struct simulate_machine_params *shipped = simulate_params(c->topo.sim);
    struct simulate_machine_params params;
    double own, best;
    int n_best = 0;

    if (strcmp(o->machine, "kunpeng920x4") != 0)
        return err_set(
            ERR_ARG,
            "study.n_bootstrap: only kunpeng920x4 has the measurements that its "
            "rates were fitted to, not %s",
            o->machine);
    c->draws = mem_new(MEM_OTHER, (size_t)o->n_bootstrap, sizeof(*c->draws));
    TRY(recall(k, c, o));
    for (int i = 0; i < o->n_bootstrap; i++) {
        params = k->fits[i];
        memcpy(params.node_factor, shipped->node_factor, sizeof(params.node_factor));
        TRY(draw_once(c, &params, &own, &best));
        c->draws[i] = own;
        n_best += own <= best;
    }
    c->r->p_best = (double)n_best / (double)o->n_bootstrap;
    return OK;
}

/* --- the report */

/* Local bandwidth of the node of the tree's first PU. */
static int stream(const struct topo_plan *c, double *gbps)
{
    const struct topo_pu *all = c->topo.machine->pus;
    const struct topo_tree *tree = c->plan.tree;
    int n = 0, rc, *pus = mem_new(MEM_OTHER, (size_t)tree->n_pus, sizeof(*pus));

    for (int i = 0; i < tree->n_pus; i++)
        if (all[tree->pus[i]].node == all[tree->pus[0]].node)
            pus[n++] = tree->pus[i];
    rc = simulate_stream_gbps(c->topo.sim, pus, n, gbps);
    mem_free(pus);
    return rc;
}

static int make_nodes_equal(struct study_topo *t)
{
    struct simulate_machine_params params = *simulate_params(t->sim);

    for (int i = 0; i < SIMULATE_NODES_MAX; i++)
        params.node_factor[i] = 1;
    simulate_machine_close(&t->sim);
    return simulate_machine_new(&t->sim, t->machine, &params);
}

static int topo_plan_open(struct topo_plan *c)
{
    const struct opts *o = c->o;

    TRY(study_topo_open(&c->topo, &STUDY_TOPO_OPTS, NULL));
    if (o->equal_nodes)
        TRY(make_nodes_equal(&c->topo));
    TRY(open_plan(&c->plan, &c->topo, o, o->plan, strlen(o->plan)));
    return open_alternatives(c, o);
}

static void topo_plan_close(struct topo_plan *c)
{
    for (int i = 0; i < c->n_alternatives; i++)
        mem_free(c->alternatives[i].tree);
    mem_free(c->plan.tree);
    mem_free(c->draws);
    study_topo_close(&c->topo);
}

static int topo_plan_run(struct topo_plan *c)
{
    const struct topo_config *config = &c->plan.c;
    size_t n = (size_t)c->o->n_bootstrap;
    struct results *r = c->r;
    double lo, hi;
    char text[96];

    FRAME_CLOSE(c->f, topo_plan_close, c);
    TRY(topo_plan_open(c));
    TRY(study_topo_step_s(&c->topo, config, TOPO_PREFILL, &r->prefill_s));
    TRY(study_topo_step_s(&c->topo, config, TOPO_DECODE, &r->decode_s));
    TRY(study_topo_request_s(&c->topo, config, config, &r->request_s));
    TRY(stream(c, &r->stream_gbps));
    frame_set(c->f, &r->p_best, NAN, "n_bootstrap is 0");
    if (n)
        TRY(bootstrap(c, study_kept(c->out)));
    r->n_ranks = config->n_ranks;
    r->n_threads = config->n_threads;
    r->kept_frac = (double)c->plan.tree->n_pus / c->topo.machine->n_pus;
    stats_percentile95(c->draws, n, &lo, &hi);
    frame_interval(c->f, &r->request_s, lo, hi);
    if (n)
        study_series(c->out, "request_s_draws", "s", c->draws, n);
    topo_config_print(config, text, sizeof(text));
    study_note_text(c->out, "configuration", text);
    study_topo_report(c->out, &c->topo);
    return OK;
}

STUDY(topo_plan, "one way to use a simulated machine's cores, priced",
      .kept_bytes = sizeof(struct fits), .close = forget);
