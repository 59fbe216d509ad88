/* Decode of a whole model whose MLPs are in slices on this CPU and an accelerator that is not
 * there (accel/paced.c): the speed that a plan predicts before anything is loaded, with its
 * interval, and the speed that is reached. Attention, its matrices and the head are the CPU's.
 * Paper: ScheInfer III, IV. */
#include <math.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/profile.h"
#include "hetero/offload.h"
#include "hetero/plan.h"

#define STEPS_MAX 256

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    X(INT, n_threads, "1",                                                               \
      "Threads of the engine. The thread that copies has the budget's last CPU.",        \
      .min = 1, .max = 1024)                                                             \
    X(INT, context, "64", "Tokens before the ones that are timed.", .unit = "tok",       \
      .min = 1, .max = 1 << 16)                                                          \
    X(INT, n_steps, "12", "Steps that are timed; their lowest decile counts.", .min = 3, \
      .max = STEPS_MAX)                                                                  \
    X(F64, link_gbps, "4", "Rate of the link.", .unit = "GB/s", .min = 0.01,             \
      .max = 1000)                                                                       \
    X(F64, cg_frac, "-1", "CG's share of what is not GG. -1: the best by the model.",    \
      .min = -1, .max = 1)                                                               \
    X(F64, gg_frac, "0", "GG's share. -1: the best within 1 GB.", .min = -1, .max = 1)   \
    X(F64, min_ms, "4", "Each point of the profile is timed for at least so long.",      \
      .unit = "ms", .min = 0, .max = 1e4)

#define RESULTS(X)                                                                       \
    X(tokens_per_s, "tok/s", HIGHER, "measured")                                         \
    X(predicted_tokens_per_s, "tok/s", 0, "by the plan, before anything was loaded")     \
    X(predicted_lo, "tok/s", 0, "lower end of its 95 % interval")                        \
    X(predicted_hi, "tok/s", 0, "upper end")                                             \
    X(ratio, "", 0, "predicted / measured")                                              \
    X(error_frac, "", LOWER, "|predicted / measured - 1|")                               \
    X(inside, "", HIGHER, "1 where the measured speed is in the interval, else 0")       \
    X(within_10, "", HIGHER, "1 where the error is at most a tenth, else 0")             \
    X(cpu_only_tokens_per_s, "tok/s", 0, "the CPU alone, predicted")                     \
    X(cg_frac, "", 0, "share of the MLPs' weights that is sent, mean of the layers")     \
    X(gg_frac, "", 0, "share that stays on the accelerator")                             \
    X(rounding_loss_frac, "", LOWER,                                                     \
      "predicted loss of slices of whole units to slices of any size")

FRAME_TYPES;

struct sliced_decode {
    FRAME_CELL;
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

static int make_plan(struct sliced_decode *c, const struct model_config *config)
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
                                   .budget_bytes = 1000000000,
                                   .n_prompt = o->context,
                                   .n_new = 0,
                                   .max_step_tok = 16,
                                   .fixed_cg = o->cg_frac,
                                   .fixed_gg = o->gg_frac};

    c->plan = mem_new(MEM_OTHER, 1, sizeof(*c->plan));
    TRY(study_profile_get(study_kept(c->out), &key, &how.profile));
    return hetero_plan_make(c->plan, &how);
}

static int open_engine(struct sliced_decode *c)
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

static int measure_steps(struct sliced_decode *c)
{
    double s[STEPS_MAX];

    for (int64_t i = -2; i < c->o->n_steps; i++) { /* two warm up */
        double unreal_s = hetero_offload_unreal_s(c->offload), step_s;

        TRY(model_bench_steps_decode(&c->bench.steps, c->phase, c->o->context, &step_s));
        if (i >= 0)
            s[i] = step_s - (hetero_offload_unreal_s(c->offload) - unreal_s);
    }
    c->r->tokens_per_s = 1 / stats_percentile(s, (size_t)c->o->n_steps, 0.1);
    study_series(c->out, "step_s", "s", s, (size_t)c->o->n_steps);
    return OK;
}

static void sliced_decode_report(struct sliced_decode *c)
{
    const struct hetero_plan *p = c->plan;
    struct results *r = c->r;

    frame_why(c->f, NULL, "the share is fixed");
    r->predicted_tokens_per_s = p->tokens_per_s;
    r->predicted_lo = p->lo;
    r->predicted_hi = p->hi;
    r->ratio = p->tokens_per_s / r->tokens_per_s;
    r->error_frac = fabs(r->ratio - 1);
    r->inside = p->lo <= r->tokens_per_s && r->tokens_per_s <= p->hi;
    r->within_10 = r->error_frac <= 0.1;
    r->cpu_only_tokens_per_s = p->cpu_only_tokens_per_s;
    r->cg_frac = r->gg_frac = 0;
    for (int i = 0; i < p->n_layers; i++) {
        r->cg_frac += (double)p->units[i].cg / p->n_units / p->n_layers;
        r->gg_frac += (double)p->units[i].gg / p->n_units / p->n_layers;
    }
    r->rounding_loss_frac = p->rounding_loss_frac;
}

static void sliced_decode_close(struct sliced_decode *c)
{
    hetero_offload_close(&c->offload);
    model_phase_close(&c->phase);
    model_bench_close(&c->bench);
    mem_free(c->plan);
}

static int sliced_decode_run(struct sliced_decode *c)
{
    struct model_config config;

    FRAME_CLOSE(c->f, sliced_decode_close, c);
    TRY(read_config(&config, c->o->model));
    TRY(make_plan(c, &config));
    TRY(open_engine(c));
    study_engine_report(c->out, &c->bench);
    TRY(measure_steps(c));
    sliced_decode_report(c);
    return OK;
}

STUDY(sliced_decode,
      "decode with sliced MLPs, predicted and measured on a paced accelerator",
      .kept_bytes = sizeof(struct study_profiles), .close = study_profiles_close);
