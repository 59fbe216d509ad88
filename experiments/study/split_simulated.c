/* The cores of one simulated machine as a prompt machine and a token machine, or as one engine that
 * switches between the configurations of both phases, has one, or mixes both phases in its batches:
 * the highest rate at which requests keep their objectives.
 *
 * Times of steps are those of the cores that a role has in each memory node; the two roles share
 * the memory controllers and hand keys and values over in memory (simulated_serving.h).
 * Paper: Sandwich 3.1, Splitwise IV. */
#include <math.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/simulated_serving.h"

#define NODES_MAX    8
#define CORES_MAX    256
#define SEEDS_MAX    32
#define CHUNK_TOK    256 /* tokens of a step with prompts in pieces */
#define NOTHING_KEPT "the engine that switches keeps the objectives at no rate"

enum { SPLIT, SWITCH, ONE_CONFIGURATION, MIXED, CHUNKED }; /* system */

#define OPTIONS(X)                                                                       \
    OPTIONS_TOPO(X, "kunpeng920x4")                                                      \
    X(ENUM, system, "split",                                                             \
      "split: prompt_lanes of the cores are a prompt machine, the rest a token "         \
      "machine. "                                                                        \
      "switch: one engine, prefill on all cores, decode on the best number. "            \
      "one_configuration: one engine, all cores for both. mixed: the same with "         \
      "prompts and tokens in one batch. chunked: the same with prompts in pieces.",      \
      .values = "split|switch|one_configuration|mixed|chunked")                          \
    X(INT, nodes, "2", "Memory nodes that are used, a rank on each.", .min = 1,          \
      .max = NODES_MAX)                                                                  \
    X(INT, cluster, "4", "Cores of a cluster, which a role has in equal parts.",         \
      .min = 2, .max = 64)                                                               \
    X(INT, prompt_lanes, "0",                                                            \
      "split: cores of each cluster for prompts. 0: as many as are best.", .min = 0,     \
      .max = 63)                                                                         \
    X(INT, max_seqs, "64", "Sequences of a machine.", .min = 1, .max = 1024)             \
    X(INT, n_seeds, "5", "Seeds of arrivals, each with a goodput of its own.", .min = 2, \
      .max = SEEDS_MAX)                                                                  \
    X(F64, ttft_factor, "3",                                                             \
      "Objective: TTFT / that of the request alone on all cores (Splitwise Table VI, "   \
      "P90).",                                                                           \
      .min = 1, .max = 1000)                                                             \
    X(F64, tpot_factor, "1.5", "The same of the time per later token.", .min = 1,        \
      .max = 1000)                                                                       \
    X(F64, contention, "1",                                                              \
      "Share of the computed contention of both roles that is simulated. 0: none.",      \
      .min = 0, .max = 10)

#define RESULTS(X)                                                                       \
    X(goodput_rps, "/s", HIGHER,                                                         \
      "highest rate at which 90 % of the requests keep both objectives, mean over "      \
      "seeds")                                                                           \
    X(over_switch, "x", HIGHER,                                                          \
      "goodput_rps / that of one engine that switches, for the same arrivals: mean "     \
      "over "                                                                            \
      "seeds")                                                                           \
    X(prompt_cores, "", 0, "cores of prefill")                                           \
    X(token_cores, "", 0, "cores of decode")                                             \
    X(prompt_ms, "ms", LOWER, "a prompt of mean length, alone")                          \
    X(token_ms, "ms", LOWER, "a token step of one sequence, alone")                      \
    X(slowdown, "x", LOWER, "of both roles while both compute")                          \
    X(ttft_kept, "", HIGHER, "at 1.05 x the goodput: share of requests with their TTFT") \
    X(tpot_kept, "", HIGHER, "at 1.05 x the goodput: share with their time per token")

FRAME_TYPES;

struct split_simulated {
    FRAME_CELL;
    struct study_topo topo;
    int pus[NODES_MAX][CORES_MAX];               /* of each memory node */
    int n_pus;                                   /* of one */
    struct study_simulated_serving_engine whole; /* all cores: what objectives refer to */
    double slowdown;
};

static enum kern_type type_of(const struct split_simulated *c)
{
    return c->o->type ? KERN_BF16 : KERN_F32;
}

/* ---- times of steps ---- */

static int find_nodes(struct split_simulated *c)
{
    const struct topo_tree *t = c->topo.tree;
    int level = study_topo_node_level(t);

    c->n_pus = topo_tree_span(t, level);
    if (c->o->nodes > topo_tree_n_nodes(t, level) || c->n_pus > CORES_MAX)
        return err_set(ERR_ARG,
                       "study.nodes: expected at most %d memory nodes of %d cores",
                       topo_tree_n_nodes(t, level), CORES_MAX);
    if (c->n_pus % c->o->cluster)
        return err_set(ERR_ARG,
                       "study.cluster: %d cores of a memory node are not clusters",
                       c->n_pus);
    for (int n = 0; n < c->o->nodes; n++)
        for (int i = 0; i < c->n_pus; i++)
            c->pus[n][i] = t->pus[n * c->n_pus + i];
    return OK;
}

/* A rank on each memory node, of the cores [lo, hi) of each cluster. */
static int config_of(const struct split_simulated *c, struct topo_tree **tree,
                     struct topo_config *out, int64_t lo, int64_t hi)
{
    int pus[NODES_MAX * CORES_MAX], n = 0;

    for (int k = 0; k < c->o->nodes; k++)
        for (int i = 0; i < c->n_pus; i++)
            if (i % c->o->cluster >= lo && i % c->o->cluster < hi)
                pus[n++] = c->pus[k][i];
    TRY(topo_tree_of_ranks(tree, c->topo.machine, pus, (int)c->o->nodes,
                           n / (int)c->o->nodes));
    return topo_config_cut(out, *tree, 1, &c->topo.limits);
}

/* prefill on the cores [lo, hi) of each cluster, decode on [dlo, dhi). */
static int open_engine(const struct split_simulated *c,
                       struct study_simulated_serving_engine *e, const int64_t lanes[4])
{
    struct topo_tree *trees[2] = {NULL, NULL};
    struct topo_config prefill, decode;
    int rc = config_of(c, &trees[0], &prefill, lanes[0], lanes[1]);

    if (rc == OK)
        rc = config_of(c, &trees[1], &decode, lanes[2], lanes[3]);
    if (rc == OK)
        rc = study_simulated_serving_engine_open(e, &c->topo, type_of(c), &prefill,
                                                 &decode, NULL);
    mem_free(trees[0]);
    mem_free(trees[1]);
    return rc;
}

/* The engine whose decode has the fastest step of those with 1 to all cores of each cluster. */
static int open_switch(const struct split_simulated *c,
                       struct study_simulated_serving_engine *e)
{
    for (int64_t k = 1; k <= c->o->cluster; k++) {
        struct study_simulated_serving_engine x = {0};

        TRY(open_engine(c, &x, (const int64_t[]){0, c->o->cluster, 0, k}));
        if (k == 1 || x.token_s < e->token_s)
            *e = x;
    }
    return OK;
}

/* ---- objectives ---- */

/* Against the request alone on all cores. */
static struct study_simulated_serving_kept
split_simulated_kept(void *ctx, const struct cluster_done *d)
{
    const struct split_simulated *c = ctx;

    return study_simulated_serving_kept_alone(&c->whole.perf, c->o->ttft_factor,
                                              c->o->tpot_factor, d);
}

static struct study_simulated_serving
serving(struct split_simulated *c, const struct study_simulated_serving_engine *prompt,
        const struct study_simulated_serving_engine *token)
{
    return (struct study_simulated_serving){.topo = &c->topo,
                                            .prompt = prompt,
                                            .token = token,
                                            .slowdown = token ? c->slowdown : 1,
                                            .policy = "continuous",
                                            .max_seqs = c->o->max_seqs,
                                            .kept = split_simulated_kept,
                                            .kept_ctx = c};
}

/* ---- the cell ---- */

struct outcome {
    double v[SEEDS_MAX], mean, ttft_kept, tpot_kept, slowdown;
    struct study_simulated_serving_engine prompt, token;
};

static int measure(const struct split_simulated *c, struct outcome *r,
                   const struct study_simulated_serving *s)
{
    struct study_simulated_serving_counts n;

    TRY(study_simulated_serving_goodputs(r->v, s, c->o->n_seeds, c->o->seed));
    r->mean = stats_mean(r->v, (size_t)c->o->n_seeds);
    r->ttft_kept = r->tpot_kept = NAN;
    r->slowdown = s->slowdown;
    if (!(r->mean > 0))
        return OK;
    TRY(study_simulated_serving_run(&n, s, 1.05 * r->mean, (uint64_t)c->o->seed));
    r->ttft_kept = (double)n.n_ttft / (double)n.n;
    r->tpot_kept = (double)n.n_tpot / (double)n.n;
    return OK;
}

/* The bandwidth that both roles ask for while they compute, over that of all of their cores. Both
 * get less in proportion to what they ask for. */
static int find_slowdown(struct split_simulated *c,
                         const struct study_simulated_serving_engine *p,
                         const struct study_simulated_serving_engine *t)
{
    int pus[NODES_MAX * CORES_MAX], n = 0;
    double gbps, want;

    for (int k = 0; k < c->o->nodes; k++)
        for (int i = 0; i < c->n_pus; i++)
            pus[n++] = c->pus[k][i];
    TRY(simulate_stream_gbps(c->topo.sim, pus, n, &gbps));
    want = 1e-9 * (p->prompt_bytes / p->prompt_s + t->token_bytes / t->token_s);
    c->slowdown = 1 + c->o->contention * (fmax(want / gbps, 1) - 1);
    return OK;
}

static int split_simulated_roles(struct split_simulated *c, struct outcome *best)
{
    int64_t lo = c->o->prompt_lanes > 0 ? c->o->prompt_lanes : 1;
    int64_t hi = c->o->prompt_lanes > 0 ? lo : c->o->cluster - 1, all = c->o->cluster;

    if (hi >= all)
        return err_set(ERR_ARG,
                       "study.prompt_lanes: expected less than study.cluster, %d",
                       (int)all);
    for (int64_t k = lo; k <= hi; k++) {
        struct outcome r = {0};
        struct study_simulated_serving s;

        TRY(open_engine(c, &r.prompt, (const int64_t[]){0, k, 0, k}));
        TRY(open_engine(c, &r.token, (const int64_t[]){k, all, k, all}));
        TRY(find_slowdown(c, &r.prompt, &r.token));
        s = serving(c, &r.prompt, &r.token);
        TRY(measure(c, &r, &s));
        if (k == lo || r.mean > best->mean)
            *best = r;
    }
    return OK;
}

static int split_simulated_one(struct split_simulated *c, struct outcome *r)
{
    static const char *const policies[] = {"", "continuous", "continuous", "mixed",
                                           "chunked"};
    struct study_simulated_serving s = serving(c, &r->prompt, NULL);

    s.policy = policies[c->o->system];
    s.max_step_tok = c->o->system == CHUNKED ? CHUNK_TOK : 0;
    if (c->o->system == SWITCH)
        TRY(open_switch(c, &r->prompt));
    else
        r->prompt = c->whole;
    r->token = r->prompt;
    return measure(c, r, &s);
}

/* Seed by seed, since arrivals differ more than engines do. */
static int compare_switch(struct split_simulated *c, const struct outcome *r)
{
    struct outcome base = {0};
    const struct study_simulated_serving s = serving(c, &base.prompt, NULL);
    double ratio[SEEDS_MAX];

    TRY(open_switch(c, &base.prompt));
    TRY(study_simulated_serving_goodputs(base.v, &s, c->o->n_seeds, c->o->seed));
    for (int64_t i = 0; i < c->o->n_seeds; i++)
        ratio[i] = base.v[i] > 0 ? r->v[i] / base.v[i] : NAN;
    study_simulated_serving_mean(c->f, &c->r->over_switch, ratio, c->o->n_seeds,
                                 NOTHING_KEPT);
    return OK;
}

static void split_simulated_report(struct split_simulated *c, const struct outcome *from)
{
    struct results *r = c->r;

    frame_why(c->f, NULL, "the objectives are not kept at any rate");
    study_simulated_serving_mean(c->f, &r->goodput_rps, from->v, c->o->n_seeds,
                                 NOTHING_KEPT);
    r->prompt_cores = from->prompt.prompt_cores;
    r->token_cores = from->token.token_cores;
    r->prompt_ms = 1e3 * from->prompt.prompt_s;
    r->token_ms = 1e3 * from->token.token_s;
    r->slowdown = from->slowdown;
    r->ttft_kept = from->ttft_kept;
    r->tpot_kept = from->tpot_kept;
    study_series(c->out, "goodputs", "/s", from->v, (size_t)c->o->n_seeds);
    study_topo_report(c->out, &c->topo);
}

static int split_simulated_run(struct split_simulated *c)
{
    struct outcome r = {0};

    FRAME_CLOSE(c->f, study_topo_close, &c->topo);
    TRY(study_topo_open(&c->topo, &STUDY_TOPO_OPTS, NULL));
    TRY(find_nodes(c));
    TRY(open_engine(c, &c->whole, (const int64_t[]){0, c->o->cluster, 0, c->o->cluster}));
    TRY(c->o->system == SPLIT ? split_simulated_roles(c, &r)
                              : split_simulated_one(c, &r));
    TRY(compare_switch(c, &r));
    split_simulated_report(c, &r);
    return OK;
}

STUDY(split_simulated,
      "the cores of a simulated machine split into roles, or as one engine");
