/* Decode of a whole model whose MLPs are in slices on this CPU and an accelerator that is not
 * there (accel/paced.c): the speed that a plan predicts before anything is loaded, with its
 * interval, and the speed that is reached. Attention, its matrices and the head are the CPU's.
 * Paper: ScheInfer III, IV. */
#include <math.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/profile.h"
#include "experiments/study/support/rows.h"
#include "hetero/offload.h"
#include "hetero/plan.h"

#define STEPS_MAX 256

struct opts {
    char *model;
    int64_t n_threads, context, n_steps, budget_mb;
    double link_gbps, cg_frac, gg_frac, min_ms;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    OPT_ROW(INT, n_threads, "1",
            "Threads of the engine. The thread that copies has the budget's last CPU.",
            .min = 1, .max = 1024),
    OPT_ROW(INT, context, "64", "Tokens before the ones that are timed.", .unit = "tok",
            .min = 1, .max = 1 << 16),
    OPT_ROW(INT, n_steps, "12", "Steps that are timed; their lowest decile counts.",
            .min = 3, .max = STEPS_MAX),
    OPT_ROW(INT, budget_mb, "1024", "Memory of the accelerator.", .unit = "MB", .min = 1,
            .max = 1 << 20),
    OPT_ROW(F64, link_gbps, "4", "Rate of the link.", .unit = "GB/s", .min = 0.01,
            .max = 1000),
    OPT_ROW(F64, cg_frac, "-1",
            "CG's share of what is not GG. -1: the best by the model.", .min = -1,
            .max = 1),
    OPT_ROW(F64, gg_frac, "0", "GG's share. -1: the best within budget_mb.", .min = -1,
            .max = 1),
    OPT_ROW(F64, min_ms, "4", "Each point of the profile is timed for at least so long.",
            .unit = "ms", .min = 0, .max = 1e4),
    {0},
};

static const struct study_metric metrics[] = {
    {"tokens_per_s", "tok/s", "higher", "measured"},
    {"predicted_tokens_per_s", "tok/s", "", "by the plan, before anything was loaded"},
    {"predicted_lo", "tok/s", "", "lower end of its 95 % interval"},
    {"predicted_hi", "tok/s", "", "upper end"},
    {"ratio", "", "", "predicted / measured"},
    {"error_frac", "", "lower", "|predicted / measured - 1|"},
    {"inside", "", "higher", "1 where the measured speed is in the interval, else 0"},
    {"within_10", "", "higher", "1 where the error is at most a tenth, else 0"},
    {"cpu_only_tokens_per_s", "tok/s", "", "the CPU alone, predicted"},
    {"cg_frac", "", "", "share of the MLPs' weights that is sent, mean of the layers"},
    {"gg_frac", "", "", "share that stays on the accelerator"},
    {"rounding_loss_frac", "", "lower",
     "predicted loss of slices of whole units to slices of any size"},
    {0},
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct model_bench bench;
    struct model_phase *phase;
    struct hetero_offload *offload;
    struct hetero_plan *plan;
};

static int read_config(struct model_config *out, const char *path)
{
    struct format_file *f = NULL;

    if (!path)
        return err_set(ERR_ARG, "study.model: expected a file, found none");
    TRY(format_open(&f, path));
    *out = f->config;
    format_close(&f);
    return OK;
}

static int make_plan(struct cell *c, const struct model_config *config)
{
    const struct opts *o = c->o;
    const struct study_profile_key key = {.type = config->weight_type,
                                          .n_threads = (int)o->n_threads,
                                          .max_tok = 64,
                                          .link_gbps = o->link_gbps,
                                          .min_s = 1e-3 * o->min_ms,
                                          .accel = true};
    struct hetero_plan_opts how = {.config = config,
                                   .n_threads = (int)o->n_threads,
                                   .budget_bytes = o->budget_mb * 1000000,
                                   .n_prompt = o->context,
                                   .n_new = 0,
                                   .max_step_tok = 16,
                                   .fixed_cg = o->cg_frac,
                                   .fixed_gg = o->gg_frac};

    c->plan = mem_new(MEM_OTHER, 1, sizeof(*c->plan));
    TRY(study_profile_get(study_kept(c->out), &key, &how.profile));
    return hetero_plan_make(c->plan, &how);
}

static int open_engine(struct cell *c)
{
    const struct model_bench_opts how = {
        .n_seqs = 1, .max_tok = c->o->context + 2, .step_tok = 16};
    struct hetero_offload_opts o = {
        .accel = {&c->plan->machines[0], study_profile_accel_cpu()},
        .units = c->plan->units,
        .n_units = c->plan->n_layers,
        .machines = c->plan->machines};

    TRY(study_engine_open(&c->bench, c->o->model, &how));
    TRY(study_engine_phase(&c->bench, &c->phase, 1, (int)c->o->n_threads));
    TRY(accel_find("paced", &o.kind));
    return hetero_offload_open(&c->offload, c->bench.model, &c->phase, 1, &o);
}

static int measure(struct cell *c, double *tokens_per_s)
{
    double s[STEPS_MAX];

    for (int64_t i = -2; i < c->o->n_steps; i++) { /* two warm up */
        double unreal_s = hetero_offload_unreal_s(c->offload), step_s;

        TRY(model_bench_steps_decode(&c->bench.steps, c->phase, c->o->context, &step_s));
        if (i >= 0)
            s[i] = step_s - (hetero_offload_unreal_s(c->offload) - unreal_s);
    }
    *tokens_per_s = 1 / stats_percentile(s, (size_t)c->o->n_steps, 0.1);
    study_series(c->out, "step_s", "s", s, (size_t)c->o->n_steps);
    return OK;
}

static void report(struct cell *c, double tokens_per_s)
{
    const struct hetero_plan *p = c->plan;
    double cg = 0, gg = 0, ratio = p->tokens_per_s / tokens_per_s;

    for (int i = 0; i < p->n_layers; i++) {
        cg += (double)p->units[i].cg / p->n_units / p->n_layers;
        gg += (double)p->units[i].gg / p->n_units / p->n_layers;
    }
    {
        const struct study_number all[] = {
            {"tokens_per_s", tokens_per_s},
            {"predicted_tokens_per_s", p->tokens_per_s},
            {"predicted_lo", p->lo},
            {"predicted_hi", p->hi},
            {"ratio", ratio},
            {"error_frac", fabs(ratio - 1)},
            {"inside", p->lo <= tokens_per_s && tokens_per_s <= p->hi},
            {"within_10", fabs(ratio - 1) <= 0.1},
            {"cpu_only_tokens_per_s", p->cpu_only_tokens_per_s},
            {"cg_frac", cg},
            {"gg_frac", gg},
            {"rounding_loss_frac", p->rounding_loss_frac}};

        STUDY_VALUES(c->out, all, "the share is fixed");
    }
}

static int run(struct cell *c)
{
    struct model_config config;
    double tokens_per_s;

    TRY(read_config(&config, c->o->model));
    TRY(make_plan(c, &config));
    TRY(open_engine(c));
    study_engine_report(c->out, &c->bench);
    TRY(measure(c, &tokens_per_s));
    report(c, tokens_per_s);
    return OK;
}

static void end(struct cell *c)
{
    hetero_offload_close(&c->offload);
    model_phase_close(&c->phase);
    model_bench_close(&c->bench);
    mem_free(c->plan);
}

STUDY(sliced_decode,
      "decode with sliced MLPs, predicted and measured on a paced accelerator",
      .kept_bytes = sizeof(struct study_profiles), .close = study_profiles_close);
