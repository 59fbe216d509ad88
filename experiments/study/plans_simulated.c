/* Plans by different methods on a simulated machine, as they serve: requests one after the other,
 * and the highest Poisson rate at which requests keep their objectives.
 * Paper: Sandwich 8.3, Fig. 9 and 12.   Deviation: under a load the objectives of each request are
 * multiples of what one rank of all cores would take for it alone, not the paper's, which are far
 * from what a simulated machine takes; only ratios between plans are looked at. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/plan.h"
#include "experiments/study/support/simulated_serving.h"

#define SEEDS_MAX 32

#define OPTIONS(X)                                                                       \
    OPTIONS_TOPO(X, "xeon8272clx2")                                                      \
    X(STR, method, "search",                                                             \
      "Method of planning: search, one_plan, even_split, vllmpp ...")                    \
    X(INT, batch, "1", "Sequences of a decode step that is planned for.", .min = 1,      \
      .max = 1024)                                                                       \
    X(F64, search_s, "30", "Limit of the plan search in each phase.", .unit = "s",       \
      .min = 0.1, .max = 3600)                                                           \
    X(INT, max_seqs, "64", "Sequences of a step.", .min = 1, .max = 1024)                \
    X(INT, n_seeds, "5", "Seeds of arrivals, each with a goodput of its own.", .min = 2, \
      .max = SEEDS_MAX)                                                                  \
    X(F64, slo_ttft_ms, "0",                                                             \
      "Objective of single requests for TTFT. 0: the paper's for the model.",            \
      .unit = "ms", .min = 0, .max = 1e9)                                                \
    X(F64, slo_tpot_ms, "0", "The same for the time per later token.", .unit = "ms",     \
      .min = 0, .max = 1e9)                                                              \
    X(F64, ttft_factor, "3",                                                             \
      "Objective: TTFT / that of the request alone under one_plan.", .min = 0.01,        \
      .max = 1000)                                                                       \
    X(F64, tpot_factor, "1.5", "The same of the time per later token.", .min = 0.01,     \
      .max = 1000)

#define RESULTS(X)                                                                       \
    X(slo_scale_p90, "x", LOWER,                                                         \
      "one request after the other: max(TTFT, time per token), each over its "           \
      "objective, "                                                                      \
      "90th "                                                                            \
      "percentile of requests; how strict objectives may be")                            \
    X(goodput_rps, "/s", HIGHER,                                                         \
      "highest rate at which 90 % of the requests keep both objectives, mean over "      \
      "seeds")                                                                           \
    X(over_one_plan, "x", HIGHER,                                                        \
      "goodput_rps / that of one_plan for the same arrivals: mean over seeds")           \
    X(ttft_ms, "ms", LOWER, "a prompt of mean length, alone")                            \
    X(tpot_ms, "ms", LOWER, "a token of a sequence of mean length, alone")               \
    X(prefill_ranks, "", 0, "ranks of prefill in the plan")                              \
    X(prefill_threads, "", 0, "threads of each prefill rank")                            \
    X(decode_ranks, "", 0, "ranks of decode in the plan")                                \
    X(decode_threads, "", 0, "threads of each decode rank")

FRAME_TYPES;

/* A plan on the simulated machine. The trees hold the CPUs of the configurations. */
struct planned {
    struct plan_search_result found;
    struct topo_tree *trees[2];
    struct topo_config prefill, decode;
    struct study_simulated_serving_engine engine;
    double token_s; /* of one sequence of mean length */
};

struct plans_simulated {
    FRAME_CELL;
    struct study_topo topo;
    struct study_planner planner;
    struct planned base, plan; /* base: one_plan */
};

static enum kern_type type_of(const struct plans_simulated *c)
{
    return c->o->type ? KERN_BF16 : KERN_F32;
}

/* ---- plans ---- */

static int open_planner(struct plans_simulated *c)
{
    char target[256];
    const struct study_plan_opts po = {.target = target,
                                       .lengths = c->topo.lengths,
                                       .batch = (int)c->o->batch,
                                       .max_s = c->o->search_s,
                                       .seed = c->o->seed};

    if (snprintf(target, sizeof(target), "%s:%s@%s", c->o->model,
                 kern_type_name(type_of(c)), c->o->machine) >= (int)sizeof(target))
        return err_set(ERR_ARG, "study.machine: the name is too long");
    return study_planner_open(&c->planner, &po);
}

/* The phase of a plan as a configuration of the machine that is simulated. */
static int config_of(const struct plans_simulated *c, const struct plan_phase *f,
                     struct topo_tree **tree, struct topo_config *out)
{
    const struct topo_machine *m = c->topo.machine;
    int pus[CPU_MAX], n = f->n_ranks * f->n_threads;

    for (int i = 0; i < n; i++)
        for (pus[i] = 0; m->pus[pus[i]].os_index != f->cpus[i];)
            pus[i]++;
    TRY(topo_tree_of_ranks(tree, m, pus, f->n_ranks, f->n_threads));
    return topo_config_cut(out, *tree, 1, &c->topo.limits);
}

static int make_plan(struct plans_simulated *c, struct planned *x, const char *method)
{
    double ctx = c->topo.prompt_tok + c->topo.output_tok / 2, bytes;

    TRY(study_plan(&x->found, &c->planner, method, 0));
    TRY(config_of(c, &x->found.plan.decode, &x->trees[0], &x->decode));
    TRY(config_of(c, &x->found.plan.prefill, &x->trees[1], &x->prefill));
    TRY(study_simulated_serving_engine_open(&x->engine, &c->topo, type_of(c), &x->prefill,
                                            &x->decode, &x->decode));
    return study_simulated_serving_token_s(&c->topo, type_of(c), &x->decode, 1, ctx,
                                           &x->token_s, &bytes);
}

static void free_plan(struct planned *x)
{
    plan_search_result_free(&x->found);
    mem_free(x->trees[0]);
    mem_free(x->trees[1]);
}

/* ---- one request after the other ---- */

static int find_objectives(const struct opts *o, double *ttft_s, double *tpot_s)
{
    static const struct {
        const char *model;
        double ttft_ms, tpot_ms;
    } paper[] = {{"llama-160m", 200, 100}, {"sheared-llama-1.3b", 2200, 70}};

    *ttft_s = 1e-3 * o->slo_ttft_ms;
    *tpot_s = 1e-3 * o->slo_tpot_ms;
    for (int i = 0; i < (int)(sizeof(paper) / sizeof(paper[0])); i++)
        if (strcmp(o->model, paper[i].model) == 0) {
            *ttft_s = *ttft_s > 0 ? *ttft_s : 1e-3 * paper[i].ttft_ms;
            *tpot_s = *tpot_s > 0 ? *tpot_s : 1e-3 * paper[i].tpot_ms;
        }
    if (*ttft_s > 0 && *tpot_s > 0)
        return OK;
    return err_set(
        ERR_ARG, "study.slo_ttft_ms and slo_tpot_ms: the paper has no objectives for %s",
        o->model);
}

static int alone_s(const struct plans_simulated *c, const struct planned *x, int64_t i,
                   double *ttft_s, double *tpot_s)
{
    const struct study_topo *t = &c->topo;
    int64_t prompt = t->lengths.n_prompt[i], output = t->lengths.n_output[i];
    double bytes;

    TRY(study_simulated_serving_prompt_s(t, type_of(c), &x->prefill, &x->decode, prompt,
                                         ttft_s, &bytes));
    return study_simulated_serving_token_s(t, type_of(c), &x->decode, 1,
                                           (double)prompt + (double)output / 2, tpot_s,
                                           &bytes);
}

static int slo_scale(const struct plans_simulated *c, double *p90)
{
    int64_t n = c->topo.lengths.n;
    double *scale, slo_ttft_s, slo_tpot_s, ttft_s, tpot_s;
    int rc = OK;

    TRY(find_objectives(c->o, &slo_ttft_s, &slo_tpot_s));
    scale = mem_new(MEM_HARNESS, (size_t)n, sizeof(*scale));
    for (int64_t i = 0; i < n && rc == OK; i++) {
        rc = alone_s(c, &c->plan, i, &ttft_s, &tpot_s);
        scale[i] = fmax(ttft_s / slo_ttft_s, tpot_s / slo_tpot_s);
    }
    if (rc == OK)
        *p90 = stats_percentile(scale, (size_t)n, 0.9);
    mem_free(scale);
    return rc;
}

/* ---- a load ---- */

static struct study_simulated_serving_kept
plans_simulated_kept(void *ctx, const struct cluster_done *d)
{
    const struct plans_simulated *c = ctx;

    return study_simulated_serving_kept_alone(&c->base.engine.perf, c->o->ttft_factor,
                                              c->o->tpot_factor, d);
}

static int goodputs(struct plans_simulated *c, const struct planned *x, double *v)
{
    const struct study_simulated_serving s = {.topo = &c->topo,
                                              .prompt = &x->engine,
                                              .slowdown = 1,
                                              .policy = "continuous",
                                              .max_seqs = c->o->max_seqs,
                                              .kept = plans_simulated_kept,
                                              .kept_ctx = c};

    return study_simulated_serving_goodputs(v, &s, c->o->n_seeds, c->o->seed);
}

/* ---- the cell ---- */

static void plans_simulated_report(struct plans_simulated *c, const double *rps,
                                   const double *ratio)
{
    const struct plan *p = &c->plan.found.plan;
    struct results *r = c->r;

    frame_why(c->f, NULL, "a time was not a number");
    study_simulated_serving_mean(c->f, &r->goodput_rps, rps, c->o->n_seeds,
                                 "a rate was not a number");
    study_simulated_serving_mean(c->f, &r->over_one_plan, ratio, c->o->n_seeds,
                                 "one_plan keeps the objectives at no rate");
    r->ttft_ms = 1e3 * c->plan.engine.prompt_s;
    r->tpot_ms = 1e3 * c->plan.token_s;
    r->prefill_ranks = p->prefill.n_ranks;
    r->prefill_threads = p->prefill.n_threads;
    r->decode_ranks = p->decode.n_ranks;
    r->decode_threads = p->decode.n_threads;
    study_series(c->out, "goodputs", "/s", rps, (size_t)c->o->n_seeds);
    study_note(c->out, "plan", plan_to_json(p));
    study_topo_report(c->out, &c->topo);
}

static void plans_simulated_close(struct plans_simulated *c)
{
    free_plan(&c->plan);
    free_plan(&c->base);
    study_planner_close(&c->planner);
    study_topo_close(&c->topo);
}

static int plans_simulated_run(struct plans_simulated *c)
{
    double base[SEEDS_MAX], rps[SEEDS_MAX], ratio[SEEDS_MAX];

    FRAME_CLOSE(c->f, plans_simulated_close, c);
    TRY(study_topo_open(&c->topo, &STUDY_TOPO_OPTS, NULL));
    TRY(open_planner(c));
    TRY(make_plan(c, &c->base, "one_plan"));
    TRY(make_plan(c, &c->plan, c->o->method));
    study_progress(c->out, 0.5, "serve");
    TRY(slo_scale(c, &c->r->slo_scale_p90));
    TRY(goodputs(c, &c->base, base));
    TRY(goodputs(c, &c->plan, rps));
    for (int64_t i = 0; i < c->o->n_seeds; i++)
        ratio[i] = base[i] > 0 ? rps[i] / base[i] : NAN;
    plans_simulated_report(c, rps, ratio);
    return OK;
}

STUDY(plans_simulated,
      "plans by different methods as they serve, on a simulated machine");
