/* What the matrices and attention compute, move and reach, in prefill and decode: MNN-LLM's
 * tables of FLOP, memory and intensity by its formulas, next to the times of a step of this engine.
 * Paper: MNN-LLM V-B. */
#include <math.h>
#include <stdio.h>

#include "base/stats.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/roofline.h"
#include "experiments/study/support/rows.h"
#include "measure/card.h"

enum { PREFILL, DECODE };

struct opts {
    char *model;
    int precision, phase;
    int64_t n_prompt_tok, n_ctx_tok, rounds, seed;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    OPT_ROW(ENUM, precision, "a8", "Precision of the matrix products.",
            .values = KERN_PRECISIONS),
    OPT_ROW(ENUM, phase, "decode", "A prompt, or one further token.",
            .values = "prefill|decode"),
    OPT_ROW(INT, n_prompt_tok, "560", "Tokens of the prompt.", .unit = "tok", .min = 1,
            .max = 16384),
    OPT_ROW(INT, n_ctx_tok, "585", "Tokens before the decoded one.", .unit = "tok",
            .min = 1, .max = 16384),
    OPT_ROW(INT, rounds, "9", "Number of steps to measure.", .min = 3, .max = 199),
    OPT_ROW(INT, seed, "1", "Seed of the token ids."),
    {0},
};

#define CLASS_METRICS(c, what)                                                           \
    {c "_gflop", "GFLOP", "", "operations of " what " that the engine executes"},        \
        {c "_gb", "GB", "",                                                              \
         "bytes of " what " by the formula, with this engine's types"},                  \
        {c "_flop_per_byte", "FLOP/B", "", c "_gflop / " c "_gb"},                       \
        {c "_s", "s", "lower", "time of " what " in a step, without waiting"},           \
        {c "_gflops", "GFLOP/s", "higher", c "_gflop / " c "_s"},                        \
        {c "_gbps", "GB/s", "higher", c "_gb / " c "_s"},                                \
        {c "_roof_gflops", "GFLOP/s", "",                                                \
         "what peak and read bandwidth of the machine card allow at that intensity"},    \
        {c "_roof_frac", "", "higher", c "_gflops / " c "_roof_gflops"},                 \
        {c "_paper_gflop", "2^30", "",                                                   \
         "operations of " what " by the paper's formula, with its types"},               \
        {c "_paper_gb", "2^30 B", "", "bytes of " what " by the same"},                  \
    {                                                                                    \
        c "_paper_flop_per_byte", "FLOP/B", "", "intensity of " what " by the same"      \
    }
static const struct study_metric metrics[] = {
    CLASS_METRICS("linear", "the matrices"),
    CLASS_METRICS("attention", "attention"),
    {"other_s", "s", "lower",
     "time of norms, rotary embedding, copies and rounding activations, without waiting"},
    {"step_s", "s", "lower", "time of the step"},
    {"tok_s", "tok/s", "higher", "tokens of the step / its time"},
    {"roof_tok_s", "tok/s", "",
     "speed if matrices and attention, one after the other, reached their roofs and "
     "nothing else took time"},
    {"roof_frac", "", "higher", "tok_s / roof_tok_s"},
    {0},
};

/* The classes of operators, which are those of a step's times, too. */
enum { LINEAR = STUDY_LINEAR, ATTENTION = STUDY_ATTENTION, N_CLASSES };
static const char *const class_names[N_CLASSES] = {"linear", "attention"};

struct found {
    int64_t n_tok; /* of the prompt, or before the decoded one */
    struct model_bench engine;
    struct model_phase *phase;
    const struct opts *o;
    struct study_cell *cell;
    struct study_compare steps; /* of one kind */
};

/* Operations and bytes of each class. */
struct work {
    double flop[N_CLASSES], bytes[N_CLASSES];
};

/* By the paper's formulas, its slips included. */
static struct work paper_work(const struct found *f)
{
    const struct model_config *c = model_config_of(f->engine.model);
    struct study_roofline_model m = study_roofline_qwen_1_8b; /* its types */
    const struct study_roofline_opts count = {.head_rows = (double)f->n_tok,
                                              .other_factor = 400};
    struct study_roofline_work w;

    m.hidden = c->dim;
    m.inner = c->hidden;
    m.vocab = c->vocab;
    m.n_blocks = c->n_layers;
    if (f->o->phase == PREFILL)
        study_roofline_prefill(&w, &m, (double)f->n_tok, &count);
    else
        study_roofline_decode(&w, &m, (double)f->n_tok, &count);
    return (struct work){{w.linear_flop, w.attention_flop},
                         {w.linear_bytes, w.attention_bytes}};
}

/* What this engine executes. Bytes of the matrices are those of the weights that a step reads, and
 * as in the paper's formula the activations that go in and out of each. Attention is fused, so
 * its bytes are keys and values, and queries and results. */
static struct work engine_work(const struct found *f)
{
    const struct opts *o = f->o;
    const struct model *m = f->engine.model;
    const struct model_config *c = model_config_of(m);
    struct model_cost_types types = model_cost_types_of(m);
    struct model_cost x = o->phase == PREFILL
                              ? model_cost_prefill(c, types, f->n_tok, 0)
                              : model_cost_decode(c, types, (double)f->n_tok + 1, 1);
    double rows = o->phase == PREFILL ? (double)f->n_tok : 1, layers = c->n_layers;
    double q = (double)c->n_heads * c->head_dim, kv = 2.0 * c->n_kv_heads * c->head_dim;
    double row = (c->dim + q + kv) + (q + c->dim) + (c->dim + 2.0 * c->hidden) +
                 (c->hidden + c->dim);
    const struct model_cost_part *parts[] = {&x.qkv, &x.o, &x.ffn, &x.head};
    struct work w = {.flop = {[ATTENTION] = x.attn.flop}};

    for (int i = 0; i < 4; i++) {
        w.flop[LINEAR] += parts[i]->flop;
        w.bytes[LINEAR] += parts[i]->weight_bytes;
    }
    w.bytes[LINEAR] += (layers * rows * row + c->dim + c->vocab) * (double)sizeof(float);
    w.bytes[ATTENTION] = x.kv_read_bytes + x.kv_write_bytes +
                         2 * layers * rows * q * (double)sizeof(float);
    return w;
}

/* ---- measuring ---- */

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct found *f = arg;
    double of[STUDY_N_CLASSES];

    TRY(study_engine_step(&f->engine, f->phase, f->o->phase == DECODE, f->n_tok,
                          &t->seconds, of));
    for (i = LINEAR; i <= STUDY_OTHER; i++)
        study_compare_put(&f->steps, i, of[i]);
    return OK;
}

static double median_of(const struct found *f, int part)
{
    return stats_median(study_compare_part(&f->steps, 0, part),
                        (size_t)f->steps.n_rounds);
}

/* ---- what is reported ---- */

/* Attention computes in f32. */
static double peak_gflops(const struct found *f, int kind, const json_t *card)
{
    enum kern_type type =
        kind == ATTENTION ? KERN_F32 : model_weight_type(f->engine.model);
    int precision = kind == ATTENTION ? KERN_EXACT : f->o->precision;

    return measure_card_peak_gflops(card, kern_type_name(type),
                                    kern_precision_name((enum kern_precision)precision),
                                    f->engine.budget.n);
}

/* Returns the seconds that the roof allows. */
static double report_class(const struct found *f, int kind, const struct work *mine,
                           const struct work *papers)
{
    const json_t *card = study_machine(f->cell);
    double flop = mine->flop[kind], bytes = mine->bytes[kind], roof = NAN;
    double s = median_of(f, kind);
    char each[48];

    if (card)
        roof = study_roof_gflops(peak_gflops(f, kind, card),
                                 flop / bytes *
                                     measure_card_read_gbps(card, f->engine.budget.n));
    const struct {
        const char *what;
        double value;
        bool arithmetic;
    } all[] = {
        {"gflop", flop * 1e-9, true},
        {"gb", bytes * 1e-9, true},
        {"flop_per_byte", flop / bytes, true},
        {"s", s, false},
        {"gflops", flop / s * 1e-9, false},
        {"gbps", bytes / s * 1e-9, false},
        {"roof_gflops", roof, true},
        {"roof_frac", flop / s * 1e-9 / roof, false},
        {"paper_gflop", papers->flop[kind] / ROOFLINE_G, true},
        {"paper_gb", papers->bytes[kind] / ROOFLINE_G, true},
        {"paper_flop_per_byte", papers->flop[kind] / papers->bytes[kind], true},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char name[48];

        snprintf(name, sizeof(name), "%s_%s", class_names[kind], all[i].what);
        study_value(f->cell, name, all[i].value, "no machine card with that bound");
        if (all[i].arithmetic)
            study_evidence(f->cell, "model", name);
    }
    snprintf(each, sizeof(each), "%s_s_each", class_names[kind]);
    study_series(f->cell, each, "s", study_compare_part(&f->steps, 0, kind),
                 (size_t)f->steps.n_rounds);
    return flop * 1e-9 / roof;
}

static void report(const struct found *f)
{
    const double rows = f->o->phase == PREFILL ? (double)f->n_tok : 1;
    const struct work mine = engine_work(f);
    const struct work papers = paper_work(f);
    double roof_s = 0, step_s = f->steps.time[0].estimate;

    for (int kind = 0; kind < N_CLASSES; kind++)
        roof_s += report_class(f, kind, &mine, &papers);
    const struct study_number all[] = {
        {"other_s", median_of(f, STUDY_OTHER)},
        {"step_s", step_s},
        {"tok_s", rows / step_s},
        {"roof_tok_s", rows / roof_s},
        {"roof_frac", roof_s / step_s},
    };

    STUDY_VALUES(f->cell, all, "no machine card with that bound");
    study_evidence(f->cell, "model", "roof_tok_s");
    study_engine_report(f->cell, &f->engine);
}

static int run(void *context, const void *opts, struct study_cell *c)
{
    const struct opts *o = opts;
    static const char *const series[] = {"step_s_each"};
    struct found *f = context;

    f->o = o;
    f->n_tok = o->phase == PREFILL ? o->n_prompt_tok : o->n_ctx_tok;
    f->cell = c;
    TRY(study_engine_open(
        &f->engine, o->model,
        &(struct model_bench_opts){.precision = (enum kern_precision)o->precision,
                                   .n_seqs = 1,
                                   .max_tok = f->n_tok + 1,
                                   .step_tok = f->n_tok + 1,
                                   .seed = (uint64_t)o->seed}));
    TRY(study_engine_phase(&f->engine, &f->phase, 1, f->engine.budget.n));
    f->steps = (struct study_compare){.cell = c,
                                      .n = 1,
                                      .how = {MEASURE_EXACTLY((int)o->rounds)},
                                      .trial = trial,
                                      .arg = f,
                                      .series = series,
                                      .doing = "steps",
                                      .n_parts = STUDY_OTHER + 1};
    TRY(study_compare(&f->steps));
    report(f);
    return OK;
}

static void end(void *context)
{
    struct found *f = context;

    study_compare_close(&f->steps);
    model_phase_close(&f->phase);
    model_bench_close(&f->engine);
}

const struct study study_mnn_linear_attention = {
    .name = "mnn_linear_attention",
    .help =
        "what matrices and attention compute, move and reach, next to MNN-LLM's counts",
    .opts = table,
    .opts_bytes = sizeof(struct opts),
    .context_bytes = sizeof(struct found),
    .metrics = metrics,
    .wants_machine = true,
    .run = run,
    .end = end,
};
