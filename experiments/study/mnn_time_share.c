/* Where the time of a step goes, by class of operator, phase and length of the context.
 * Paper: MNN-LLM IV-A. */
#include "base/stats.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/rows.h"

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

/* Of each step: shares of the operators' time, and of the step's. */
enum { LINEAR, ATTENTION, MEMORY, WAIT, TIMED, N_PARTS };

struct cell {
    struct model_bench engine;
    struct model_phase *phase;
    const struct opts *o;
    struct study_compare steps; /* of one kind */
};

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;
    double s[STUDY_N_CLASSES], work;

    (void)i;
    TRY(study_engine_step(&f->engine, f->phase, f->o->phase == DECODE, f->o->n_tok,
                          &t->seconds, s));
    work = s[STUDY_LINEAR] + s[STUDY_ATTENTION] + s[STUDY_OTHER];
    study_compare_put(&f->steps, LINEAR, s[STUDY_LINEAR] / work);
    study_compare_put(&f->steps, ATTENTION, s[STUDY_ATTENTION] / work);
    study_compare_put(&f->steps, MEMORY, s[STUDY_OTHER] / work);
    study_compare_put(&f->steps, WAIT, s[STUDY_WAIT] / t->seconds);
    study_compare_put(&f->steps, TIMED, (work + s[STUDY_WAIT]) / t->seconds);
    return OK;
}

static void report(const struct cell *f, struct study_cell *c)
{
    static const char *const series[] = {"share_linear_each", "share_attention_each",
                                         "share_memory_each", "wait_frac_each"};
    const struct opts *o = f->o;
    size_t n = (size_t)f->steps.n_rounds;
    double step_s = f->steps.time[0].estimate, median[N_PARTS];

    for (int i = 0; i < N_PARTS; i++)
        median[i] = stats_median(study_compare_part(&f->steps, 0, i), n);
    const struct study_number all[] = {
        {"share_linear", median[LINEAR]},
        {"share_attention", median[ATTENTION]},
        {"share_memory", median[MEMORY]},
        {"wait_frac", median[WAIT]},
        {"share_mad", stats_mad(study_compare_part(&f->steps, 0, LINEAR), n)},
        {"step_s", step_s},
        {"timed_frac", median[TIMED]},
        {"tok_s", (o->phase == PREFILL ? (double)o->n_tok : 1) / step_s},
        {"bound_tok_s",
         study_engine_bound_tok_s(&f->engine, study_machine(c), o->phase == DECODE,
                                  o->n_tok, (enum kern_precision)o->precision)},
    };

    STUDY_VALUES(c, all, "no machine card with that bound");
    study_evidence(c, "model", "bound_tok_s");
    for (int i = LINEAR; i <= WAIT; i++)
        study_series(c, series[i], "", study_compare_part(&f->steps, 0, i), n);
    study_engine_report(c, &f->engine);
}

static int run(void *context, const void *opts, struct study_cell *c)
{
    static const char *const series[] = {"step_s_each"};
    const struct opts *o = opts;
    struct cell *f = context;

    f->o = o;
    TRY(study_engine_open(
        &f->engine, o->model,
        &(struct model_bench_opts){.precision = (enum kern_precision)o->precision,
                                   .n_seqs = 1,
                                   .max_tok = o->n_tok + 1,
                                   .seed = (uint64_t)o->seed}));
    TRY(study_engine_phase(&f->engine, &f->phase, 1, f->engine.budget.n));
    f->steps = (struct study_compare){.cell = c,
                                      .n = 1,
                                      .how = {MEASURE_EXACTLY((int)o->rounds)},
                                      .trial = trial,
                                      .arg = f,
                                      .series = series,
                                      .doing = "steps",
                                      .n_parts = N_PARTS};
    TRY(study_compare(&f->steps));
    report(f, c);
    return OK;
}

static void end(void *context)
{
    struct cell *f = context;

    study_compare_close(&f->steps);
    model_phase_close(&f->phase);
    model_bench_close(&f->engine);
}

const struct study study_mnn_time_share = {
    .name = "mnn_time_share",
    .help = "time of a step by class of operator",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .context_bytes = sizeof(struct cell),
    .metrics = metrics,
    .wants_machine = true,
    .run = run,
    .end = end,
};
