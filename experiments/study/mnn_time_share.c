/* Where the time of a step goes, by class of operator, phase and length of the context.
 * Paper: MNN-LLM IV-A. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/rows.h"
#include "measure/card.h"
#include "measure/compare.h"

enum { PREFILL, DECODE };

struct opts {
    char *model;
    int precision, phase;
    int64_t n_tok, rounds, seed;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_PRECISION,
    OPT_ROW(ENUM, phase, "decode", "A prompt, or one further token.",
            .values = "prefill|decode"),
    OPT_ROW(INT, n_tok, "128", "Tokens of the prompt, or before the decoded token.",
            .min = 1, .max = 65536),
    OPT_ROW(INT, rounds, "9", "Number of steps to measure.", .min = 3, .max = 999),
    OPT_ROW(INT, seed, "1", "Seed of the token ids."),
    {0},
};

static const struct study_metric metrics[] = {
    {"share_linear", "", "",
     "time of the matrices, output projection included / time of all operators"},
    {"share_attention", "", "",
     "time of attention (products, softmax, writing keys and values) / time of all "
     "operators"},
    {"share_memory", "", "",
     "time of norms, rotary embedding and copies / time of all operators"},
    {"wait_frac", "", "lower",
     "time waiting for other threads / time of the step; other programs increase it"},
    {"share_mad", "", "", "median absolute deviation of share_linear"},
    {"step_s", "s", "lower", "time of the step"},
    {"timed_frac", "", "higher", "time of operators and waiting / time of the step"},
    {"tok_s", "tok/s", "higher", "tokens of the step / its time"},
    {"bound_tok_s", "tok/s", "",
     "speed that the read bandwidth (decode) or peak (prefill) of the machine card "
     "allows"},
    {0},
};

#define ROUNDS_MAX 999

struct found {
    struct model_bench engine;
    struct model_phase *phase;
    const struct opts *o;
    struct study_cell *cell;
    struct measure *measure; /* of the one kind of step */
    int n_steps;
    double timed[ROUNDS_MAX];
    double linear[ROUNDS_MAX], attention[ROUNDS_MAX], memory[ROUNDS_MAX],
        wait[ROUNDS_MAX];
};

static int step(struct found *f, double *seconds)
{
    return model_bench_steps_of(&f->engine.steps, f->phase, f->o->phase == DECODE,
                                f->o->n_tok, seconds);
}

/* By the clock of thread 0, which has an equal part of every operator; where it waits,
 * another had more to do or was held up. */
static int trial(void *arg, int i, struct measure_trial *t)
{
    struct found *f = arg;
    uint64_t ns[MODEL_T_N];
    double work, wait;
    int r = f->n_steps++;

    (void)i;
    model_times_take(f->engine.model, ns);
    TRY(step(f, &t->seconds));
    model_times_take(f->engine.model, ns);
    wait = (double)(ns[MODEL_T_WAIT] + ns[MODEL_T_REDUCE]);
    work = (double)(ns[MODEL_T_LINEAR] + ns[MODEL_T_HEAD] + ns[MODEL_T_ATTN] +
                    ns[MODEL_T_NORM_ROPE]);
    f->linear[r] = (double)(ns[MODEL_T_LINEAR] + ns[MODEL_T_HEAD]) / work;
    f->attention[r] = (double)ns[MODEL_T_ATTN] / work;
    f->memory[r] = (double)ns[MODEL_T_NORM_ROPE] / work;
    f->wait[r] = wait * 1e-9 / t->seconds;
    f->timed[r] = (work + wait) * 1e-9 / t->seconds;
    study_progress(f->cell, (double)(r + 1) / (double)f->o->rounds, "steps");
    return OK;
}

static double bound_tok_s(const struct found *f, const struct opts *o, const json_t *card)
{
    const struct model *m = f->engine.model;
    const struct model_config *c = model_config_of(m);
    struct model_cost_types types = model_cost_types_of(m);
    const char *precision = kern_precision_name(o->precision);
    int n = f->engine.budget.n;

    if (!card)
        return NAN;
    if (o->phase == DECODE)
        return measure_card_read_gbps(card, n) * 1e9 /
               model_cost_decode(c, types, (double)o->n_tok + 1, 1).read_bytes;
    return measure_card_peak_gflops(card, kern_type_name(types.weight), precision, n) *
           1e9 * (double)o->n_tok / model_cost_prefill(c, types, o->n_tok, 0).flop;
}

static void report(const struct found *f, const struct opts *o, struct study_cell *c)
{
    size_t n = (size_t)o->rounds;
    struct measure_report s;
    int n_rounds;
    const double *each = measure_times(f->measure, 0, &n_rounds);

    measure_report(f->measure, 0, &s);

    const struct study_number all[] = {
        {"share_linear", stats_median(f->linear, n)},
        {"share_attention", stats_median(f->attention, n)},
        {"share_memory", stats_median(f->memory, n)},
        {"wait_frac", stats_median(f->wait, n)},
        {"share_mad", stats_mad(f->linear, n)},
        {"step_s", s.estimate},
        {"timed_frac", stats_median(f->timed, n)},
        {"tok_s", (o->phase == PREFILL ? (double)o->n_tok : 1) / s.estimate},
        {"bound_tok_s", bound_tok_s(f, o, study_machine(c))},
    };

    STUDY_VALUES(c, all, "no machine card with that bound");
    study_evidence(c, "model", "bound_tok_s");
    study_series(c, "step_s_each", "s", each, n);
    study_series(c, "share_linear_each", "", f->linear, n);
    study_series(c, "share_attention_each", "", f->attention, n);
    study_series(c, "share_memory_each", "", f->memory, n);
    study_series(c, "wait_frac_each", "", f->wait, n);
    study_engine_report(c, &f->engine);
}

static int run(void *context, const void *opts, struct study_cell *c)
{
    const struct opts *o = opts;
    const struct measure_opts rounds = {MEASURE_EXACTLY((int)o->rounds), .n_warm_up = -1};
    struct found *f = context;
    double warm;

    f->o = o;
    f->cell = c;
    TRY(study_engine_open(
        &f->engine, o->model,
        &(struct model_bench_opts){.precision = (enum kern_precision)o->precision,
                                   .n_seqs = 1,
                                   .max_tok = o->n_tok + 1,
                                   .seed = (uint64_t)o->seed}));
    TRY(study_engine_phase(&f->engine, &f->phase, 1, f->engine.budget.n, NULL));
    TRY(step(f, &warm));
    TRY(measure_open(&f->measure, 1, ROUNDS_MAX));
    TRY(measure_compare(f->measure, 1, &rounds, trial, f));
    report(f, o, c);
    return OK;
}

static void end(void *context)
{
    struct found *f = context;

    measure_close(&f->measure);
    model_phase_close(&f->phase);
    model_bench_close(&f->engine);
}

const struct study study_mnn_time_share = {
    .name = "mnn_time_share",
    .help = "time of a step by class of operator",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .context_bytes = sizeof(struct found),
    .metrics = metrics,
    .wants_machine = true,
    .run = run,
    .end = end,
};
