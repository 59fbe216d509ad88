/* MNN-LLM's optimizations one after the other on this engine: attention as separate operators and
 * signed 4-bit weights in straight order; attention fused; weights unsigned; weights in transposed
 * order, which is the engine as it is. A step of a whole model, prefill or decode.
 * Paper: MNN-LLM V-C. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "cpu/cpu.h"
#include "experiments/study/int4/int4.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/unfused.h"

enum { PREFILL, DECODE };
enum { LINEAR = STUDY_LINEAR, ATTENTION = STUDY_ATTENTION, N_PARTS };

/* In the order in which they are added. */
enum { BASELINE, FUSED, UNSIGNED, TRANSPOSED, N_STEPS };
static const char *const step_names[N_STEPS] = {"baseline", "fused", "unsigned",
                                                "transposed"};
static const char *const gain_names[N_STEPS] = {
    NULL, "gain_attention_fuse", "gain_int4_to_uint4", "gain_pre_transpose"};

struct opts {
    char *model;
    int phase;
    int64_t n_prompt_tok, n_ctx_tok, n_decoded_tok, rounds, seed;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    OPT_ROW(ENUM, phase, "decode", "A prompt, or tokens that follow one.",
            .values = "prefill|decode"),
    OPT_ROW(INT, n_prompt_tok, "560", "Tokens of the prompt.", .unit = "tok", .min = 1,
            .max = 16384),
    OPT_ROW(INT, n_ctx_tok, "585", "Tokens before a decoded one.", .unit = "tok",
            .min = 1, .max = 16384),
    OPT_ROW(INT, n_decoded_tok, "8",
            "Tokens that a trial of decode computes, each after n_ctx_tok others.",
            .min = 1, .max = 999),
    OPT_ROW(INT, rounds, "9", "Rounds in which all steps are measured.", .min = 3,
            .max = 199),
    OPT_ROW(INT, seed, "1", "Seed of the token ids."),
    {0},
};

#define STEP_METRICS(name, what)                                                         \
    {"tok_s_" name, "tok/s", "higher", "speed with " what},                              \
        {"attention_s_" name, "s", "lower",                                              \
         "time of attention in a step of the model with " what},                         \
    {                                                                                    \
        "linear_s_" name, "s", "lower",                                                  \
            "time of the matrices, output projection included, in a step with " what     \
    }
#define GAIN_METRICS(name, what)                                                         \
    {                                                                                    \
        "gain_" name, "", "higher", "speed with " what " / speed before it, less 1"      \
    }
static const struct study_metric metrics[] = {
    STEP_METRICS("baseline", "separate operators for attention and signed weights in "
                             "straight order"),
    STEP_METRICS("fused", "attention fused"),
    STEP_METRICS("unsigned", "attention fused and weights unsigned"),
    STEP_METRICS("transposed", "all optimizations"),
    GAIN_METRICS("attention_fuse", "attention fused"),
    GAIN_METRICS("int4_to_uint4", "weights unsigned"),
    GAIN_METRICS("pre_transpose", "weights in transposed order"),
    {"gain_all", "", "higher", "speed with all of them / speed of the baseline, less 1"},
    {"same_logits", "", "higher",
     "1: the logits of the last three steps are the same, bit for bit"},
    {"unfused_error", "", "lower",
     "largest difference of a logit between the baseline and fused attention / root mean "
     "square of the logits"},
    {"bound_tok_s", "tok/s", "",
     "speed that the read bandwidth (decode) or the peak (prefill) of the machine card "
     "allows"},
    {0},
};

struct cell {
    const struct opts *o;
    int64_t n_tok; /* of the prompt, or before a decoded one */
    struct study_cell *out;
    struct study_int4 int4;
    /* Of the same file: its weights as the engine has them, and in straight order. Thread 0 of
     * both is the caller, so the second one is closed first. */
    struct model_bench engine, straight;
    struct model_phase *engine_phase, *straight_phase;
    struct study_unfused *unfused;
    struct study_compare steps;
    float *logits[N_STEPS]; /* of the latest trial */
};

/* ---- opening ---- */

static int open_engine(struct cell *f, struct model_bench *out, const int *cpus,
                       int n_cpus)
{
    const struct opts *o = f->o;

    TRY(study_engine_open(out, o->model,
                          &(struct model_bench_opts){.precision = KERN_A8,
                                                     .n_seqs = 1,
                                                     .max_tok = f->n_tok + 1,
                                                     .step_tok = f->n_tok + 1,
                                                     .seed = (uint64_t)o->seed,
                                                     .cpus = cpus,
                                                     .n_cpus = n_cpus}));
    if (model_weight_type(out->model) != KERN_Q4_0)
        return err_set(ERR_ARG, "%s: expected weights in q4_0, found %s", o->model,
                       kern_type_name(model_weight_type(out->model)));
    if (model_config_of(out->model)->tied)
        return err_set(
            ERR_ARG,
            "%s: expected an embedding of its own, found one tied to the head, "
            "whose codes this study reorders",
            o->model);
    model_variant_set(out->model, f->int4.transposed);
    return OK;
}

static int open_all(struct cell *f)
{
    const struct cpu_budget *b = &f->engine.budget;
    size_t vocab;

    study_int4_choose(&f->int4, cpu_isa_usable());
    TRY(open_engine(f, &f->engine, NULL, 0));
    TRY(open_engine(f, &f->straight, b->cpus, b->n));
    model_mats_each(f->straight.model, study_int4_straight, NULL);
    model_variant_set(f->straight.model, f->int4.unsigned_straight);
    TRY(study_engine_phase(&f->straight, &f->straight_phase, 1, b->n));
    TRY(study_engine_phase(&f->engine, &f->engine_phase, 1, b->n));
    f->unfused = study_unfused_open(f->straight.model, f->n_tok + 1, f->n_tok + 1, b->n);
    vocab = (size_t)model_config_of(f->engine.model)->vocab;
    for (int i = 0; i < N_STEPS; i++) {
        f->logits[i] = mem_new(MEM_OTHER, vocab, sizeof(*f->logits[i]));
        if (!f->logits[i])
            return ERR_NOMEM;
    }
    return OK;
}

/* ---- a trial ---- */

/* The engine that computes step i, made ready for it. */
static int engine_of(struct cell *f, int i, struct model_bench **e,
                     struct model_phase **phase)
{
    const struct kern_variant *v = f->int4.unsigned_straight;

    *e = &f->engine;
    *phase = f->engine_phase;
    if (i == TRANSPOSED)
        return OK;
    *e = &f->straight;
    *phase = f->straight_phase;
    model_variant_set(f->straight.model, i == UNSIGNED ? v : f->int4.signed_straight);
    return study_unfused_set(*phase, i == BASELINE ? f->unfused : NULL);
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;
    const struct opts *o = f->o;
    int n_steps = o->phase == DECODE ? (int)o->n_decoded_tok : 1;
    struct model_phase *phase;
    struct model_bench *e;
    double sum[STUDY_N_CLASSES] = {0};

    TRY(engine_of(f, i, &e, &phase));
    t->seconds = 0;
    for (int k = 0; k < n_steps; k++) {
        double s, of[STUDY_N_CLASSES];

        TRY(study_engine_step(e, phase, o->phase == DECODE, f->n_tok, &s, of));
        t->seconds += s / n_steps;
        for (int p = 0; p < N_PARTS; p++)
            sum[p] += of[p] / n_steps;
    }
    for (int p = 0; p < N_PARTS; p++)
        study_compare_put(&f->steps, p, sum[p]);
    memcpy(f->logits[i], e->steps.logits,
           (size_t)model_config_of(e->model)->vocab * sizeof(float));
    return OK;
}

/* Decode reads the keys and values of a prompt, which are the same in both engines. */
static int prompt(struct cell *f)
{
    double s;

    if (f->o->phase == PREFILL)
        return OK;
    TRY(model_bench_steps_prefill(&f->straight.steps, f->straight_phase, f->n_tok, &s));
    return model_bench_steps_prefill(&f->engine.steps, f->engine_phase, f->n_tok, &s);
}

/* ---- what is reported ---- */

static void report_step(const struct cell *f, int i)
{
    static const char *const parts[N_PARTS] = {
        [LINEAR] = "linear_s_", [ATTENTION] = "attention_s_"};
    double n_tok = f->o->phase == PREFILL ? (double)f->n_tok : 1;
    char name[48];

    snprintf(name, sizeof(name), "tok_s_%s", step_names[i]);
    study_value(f->out, name, n_tok / f->steps.time[i].estimate,
                "no round was undisturbed");
    for (int p = 0; p < N_PARTS; p++) {
        snprintf(name, sizeof(name), "%s%s", parts[p], step_names[i]);
        study_value(f->out, name, study_compare_median(&f->steps, i, p), NULL);
    }
}

static void report_logits(const struct cell *f)
{
    size_t n = (size_t)model_config_of(f->engine.model)->vocab;
    const float *x = f->logits[FUSED];
    double sum = 0, most = 0;
    bool same = memcmp(x, f->logits[UNSIGNED], n * sizeof(*x)) == 0 &&
                memcmp(x, f->logits[TRANSPOSED], n * sizeof(*x)) == 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
        most = fmax(most, fabs((double)x[i] - (double)f->logits[BASELINE][i]));
    }
    study_value(f->out, "same_logits", same, NULL);
    study_value(f->out, "unfused_error", most / sqrt(sum / (double)n),
                "the logits are not finite");
}

static void report(const struct cell *f)
{
    for (int i = 0; i < N_STEPS; i++)
        report_step(f, i);
    for (int i = BASELINE + 1; i < N_STEPS; i++)
        study_compare_ratio(&f->steps, gain_names[i], i - 1, i, 1);
    study_compare_ratio(&f->steps, "gain_all", BASELINE, TRANSPOSED, 1);
    report_logits(f);
    study_value(f->out, "bound_tok_s",
                study_engine_bound_tok_s(&f->engine, study_machine(f->out),
                                         f->o->phase == DECODE, f->n_tok, KERN_A8),
                "no machine card with that bound");
    study_evidence(f->out, "model", "bound_tok_s");
    study_note_text(f->out, "variant_signed", f->int4.signed_straight->name);
    study_note_text(f->out, "variant_unsigned", f->int4.unsigned_straight->name);
    study_engine_report(f->out, &f->engine);
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;

    f->n_tok = o->phase == PREFILL ? o->n_prompt_tok : o->n_ctx_tok;
    TRY(open_all(f));
    TRY(prompt(f));
    f->steps = (struct study_compare){
        .series = (const char *const[]){"step_s_baseline", "step_s_fused",
                                        "step_s_unsigned", "step_s_transposed"},
        .doing = "rounds"};
    TRY(study_compare(&f->steps, f->out, N_STEPS, o->rounds, trial, f));
    report(f);
    return OK;
}

static void end(struct cell *f)
{
    for (int i = 0; i < N_STEPS; i++)
        mem_free(f->logits[i]);
    study_compare_close(&f->steps);
    study_unfused_close(&f->unfused);
    model_phase_close(&f->straight_phase);
    model_phase_close(&f->engine_phase);
    model_bench_close(&f->straight);
    model_bench_close(&f->engine);
}

STUDY(mnn_ablation,
      "attention fused, 4-bit weights unsigned and transposed, one after the other",
      .wants_machine = true);
