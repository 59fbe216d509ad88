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
#include "experiments/frame/frame.h"
#include "experiments/study/int4/int4.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/unfused.h"

enum { PREFILL, DECODE };
enum { LINEAR = STUDY_LINEAR, ATTENTION = STUDY_ATTENTION, N_PARTS };

/* In the order in which they are added. */
enum { BASELINE, FUSED, UNSIGNED, TRANSPOSED, N_STEPS };
static const char *const step_names[N_STEPS] = {"baseline", "fused", "unsigned",
                                                "transposed"};
static const char *const gain_names[N_STEPS] = {
    NULL, "gain_attention_fuse", "gain_int4_to_uint4", "gain_pre_transpose"};

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    X(ENUM, phase, "decode", "A prompt, or tokens that follow one.",                     \
      .values = "prefill|decode")                                                        \
    X(INT, n_prompt_tok, "560", "Tokens of the prompt.", .unit = "tok", .min = 1,        \
      .max = 16384)                                                                      \
    X(INT, n_ctx_tok, "585", "Tokens before a decoded one.", .unit = "tok", .min = 1,    \
      .max = 16384)                                                                      \
    X(INT, n_decoded_tok, "8",                                                           \
      "Tokens that a trial of decode computes, each after n_ctx_tok others.", .min = 1,  \
      .max = 999)                                                                        \
    X(INT, rounds, "9", "Rounds in which all steps are measured.", .min = 3, .max = 199) \
    X(INT, seed, "1", "Seed of the token ids.")

#define STEP_RESULTS(X, name, what)                                                      \
    X(tok_s_##name, "tok/s", HIGHER, "speed with " what)                                 \
    X(attention_s_##name, "s", LOWER,                                                    \
      "time of attention in a step of the model with " what)                             \
    X(linear_s_##name, "s", LOWER,                                                       \
      "time of the matrices, output projection included, in a step with " what)
#define GAIN_RESULT(X, name, what)                                                       \
    X(gain_##name, "", HIGHER, "speed with " what " / speed before it, less 1")
#define RESULTS(X)                                                                       \
    STEP_RESULTS(                                                                        \
        X, baseline,                                                                     \
        "separate operators for attention and signed weights in straight order")         \
    STEP_RESULTS(X, fused, "attention fused")                                            \
    STEP_RESULTS(X, unsigned, "attention fused and weights unsigned")                    \
    STEP_RESULTS(X, transposed, "all optimizations")                                     \
    GAIN_RESULT(X, attention_fuse, "attention fused")                                    \
    GAIN_RESULT(X, int4_to_uint4, "weights unsigned")                                    \
    GAIN_RESULT(X, pre_transpose, "weights in transposed order")                         \
    X(gain_all, "", HIGHER, "speed with all of them / speed of the baseline, less 1")    \
    X(same_logits, "", HIGHER,                                                           \
      "1: the logits of the last three steps are the same, bit for bit")                 \
    X(unfused_error, "", LOWER,                                                          \
      "largest difference of a logit between the baseline and fused attention / root "   \
      "mean square of the logits")                                                       \
    X(bound_tok_s, "tok/s", MODEL,                                                       \
      "speed that the read bandwidth (decode) or the peak (prefill) of the machine "     \
      "card allows")

FRAME_TYPES;

struct mnn_ablation {
    FRAME_CELL;
    int64_t n_tok; /* of the prompt, or before a decoded one */
    struct study_int4 int4;
    /* The weights of one file, as the engine has them and in straight order. Thread 0 of
     * both is the caller, so the second one is closed first. */
    struct model_bench engine, straight;
    struct model_phase *engine_phase, *straight_phase;
    struct study_unfused *unfused;
    float *logits[N_STEPS]; /* of the latest trial */
};

/* ---- opening ---- */

static int mnn_ablation_open_engine(struct mnn_ablation *c, struct model_bench *out,
                                    const int *cpus, int n_cpus)
{
    const struct opts *o = c->o;

    TRY(study_engine_open(out, o->model,
                          &(struct model_bench_opts){.precision = KERN_A8,
                                                     .n_seqs = 1,
                                                     .max_tok = c->n_tok + 1,
                                                     .step_tok = c->n_tok + 1,
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
    model_variant_set(out->model, &c->int4.transposed);
    return OK;
}

static int open_all(struct mnn_ablation *c)
{
    const struct cpu_budget *b = &c->engine.budget;
    size_t vocab;

    study_int4_choose(&c->int4, cpu_isa_usable());
    TRY(mnn_ablation_open_engine(c, &c->engine, NULL, 0));
    TRY(mnn_ablation_open_engine(c, &c->straight, b->cpus, b->n));
    model_mats_each(c->straight.model, study_int4_straight, NULL);
    model_variant_set(c->straight.model, c->int4.unsigned_straight);
    TRY(study_engine_phase(&c->straight, &c->straight_phase, 1, b->n));
    TRY(study_engine_phase(&c->engine, &c->engine_phase, 1, b->n));
    c->unfused = study_unfused_open(c->straight.model, c->n_tok + 1, c->n_tok + 1, b->n);
    vocab = (size_t)model_config_of(c->engine.model)->vocab;
    for (int i = 0; i < N_STEPS; i++)
        c->logits[i] = frame_new(c->f, vocab, sizeof(*c->logits[i]));
    return OK;
}

/* ---- a trial ---- */

/* The engine that computes step i, made ready for it. */
static int engine_of(struct mnn_ablation *c, int i, struct model_bench **e,
                     struct model_phase **phase)
{
    const struct kern_variant *v = c->int4.unsigned_straight;

    *e = &c->engine;
    *phase = c->engine_phase;
    if (i == TRANSPOSED)
        return OK;
    *e = &c->straight;
    *phase = c->straight_phase;
    model_variant_set(c->straight.model, i == UNSIGNED ? v : c->int4.signed_straight);
    return study_unfused_set(*phase, i == BASELINE ? c->unfused : NULL);
}

static const char *const parts[N_PARTS] = {
    [LINEAR] = "linear_s", [ATTENTION] = "attention_s"};

static int mnn_ablation_trial(void *arg, int i, struct measure_trial *t)
{
    struct mnn_ablation *c = arg;
    const struct opts *o = c->o;
    int n_steps = o->phase == DECODE ? (int)o->n_decoded_tok : 1;
    struct model_phase *phase;
    struct model_bench *e;
    double sum[STUDY_N_CLASSES] = {0};

    TRY(engine_of(c, i, &e, &phase));
    t->seconds = 0;
    for (int k = 0; k < n_steps; k++) {
        double s, of[STUDY_N_CLASSES];

        TRY(study_engine_step(e, phase, o->phase == DECODE, c->n_tok, &s, of));
        t->seconds += s / n_steps;
        for (int p = 0; p < N_PARTS; p++)
            sum[p] += of[p] / n_steps;
    }
    for (int p = 0; p < N_PARTS; p++)
        frame_put(c->f, frame_named(c->f, "%s_%s", parts[p], step_names[i]), sum[p]);
    memcpy(c->logits[i], e->steps.logits,
           (size_t)model_config_of(e->model)->vocab * sizeof(float));
    return OK;
}

/* Decode reads the keys and values of a prompt, which are the same in both engines. */
static int prompt(struct mnn_ablation *c)
{
    double s;

    if (c->o->phase == PREFILL)
        return OK;
    TRY(model_bench_steps_prefill(&c->straight.steps, c->straight_phase, c->n_tok, &s));
    return model_bench_steps_prefill(&c->engine.steps, c->engine_phase, c->n_tok, &s);
}

/* ---- what is reported ---- */

static void report_logits(const struct mnn_ablation *c)
{
    size_t n = (size_t)model_config_of(c->engine.model)->vocab;
    const float *x = c->logits[FUSED];
    double sum = 0, most = 0;
    bool same = memcmp(x, c->logits[UNSIGNED], n * sizeof(*x)) == 0 &&
                memcmp(x, c->logits[TRANSPOSED], n * sizeof(*x)) == 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
        most = fmax(most, fabs((double)x[i] - (double)c->logits[BASELINE][i]));
    }
    c->r->same_logits = same;
    frame_set(c->f, &c->r->unfused_error, most / sqrt(sum / (double)n),
              "the logits are not finite");
}

static void mnn_ablation_report(const struct mnn_ablation *c)
{
    double n_tok = c->o->phase == PREFILL ? (double)c->n_tok : 1;
    char name[48];

    for (int i = 0; i < N_STEPS; i++) {
        frame_set(c->f, frame_named(c->f, "tok_s_%s", step_names[i]),
                  n_tok / frame_seconds(c->f, i), "no round was undisturbed");
        snprintf(name, sizeof(name), "step_s_%s", step_names[i]);
        frame_times_series(c->f, name, i);
    }
    for (int i = BASELINE + 1; i < N_STEPS; i++)
        frame_ratio(c->f, frame_named(c->f, "%s", gain_names[i]), i - 1, i, 1);
    frame_ratio(c->f, &c->r->gain_all, BASELINE, TRANSPOSED, 1);
    report_logits(c);
    frame_set(c->f, &c->r->bound_tok_s,
              study_engine_bound_tok_s(&c->engine, study_machine(c->out),
                                       c->o->phase == DECODE, c->n_tok, KERN_A8),
              "no machine card with that bound");
    study_note_text(c->out, "variant_signed", c->int4.signed_straight->name);
    study_note_text(c->out, "variant_unsigned", c->int4.unsigned_straight->name);
    study_engine_report(c->out, &c->engine);
}

static int mnn_ablation_run(struct mnn_ablation *c)
{
    const struct opts *o = c->o;

    FRAME_CLOSE(c->f, model_bench_close, &c->engine);
    FRAME_CLOSE(c->f, model_bench_close, &c->straight);
    FRAME_CLOSE(c->f, model_phase_close, &c->engine_phase);
    FRAME_CLOSE(c->f, model_phase_close, &c->straight_phase);
    FRAME_CLOSE(c->f, study_unfused_close, &c->unfused);
    c->n_tok = o->phase == PREFILL ? o->n_prompt_tok : o->n_ctx_tok;
    TRY(open_all(c));
    TRY(prompt(c));
    TRY(frame_rounds(c->f, "rounds", N_STEPS, o->rounds, mnn_ablation_trial, c));
    mnn_ablation_report(c);
    return OK;
}

STUDY(mnn_ablation,
      "attention fused, 4-bit weights unsigned and transposed, one after the other",
      .wants_machine = true);
