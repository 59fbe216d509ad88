/* Where the time of a step goes, by class of operator, phase and length of the context; and
 * what the matrices and attention compute, move and reach: MNN-LLM's tables of FLOP, memory
 * and intensity by its formulas, next to the times of a step of this engine.
 * Paper: MNN-LLM IV-A, V-B. */
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
    int64_t n_tok, n_ctx_tok, step_tok, rounds, seed;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_PRECISION,
    OPT_ROW(ENUM, phase, "decode", "A prompt, or one further token.",
            .values = "prefill|decode"),
    OPT_ROW(INT, n_tok, "128", "Tokens of the prompt, or before the decoded token.",
            .unit = "tok", .min = 1, .max = 65536),
    OPT_ROW(INT, n_ctx_tok, "0", "Tokens before the decoded one. 0: n_tok.",
            .unit = "tok", .min = 0, .max = 65536),
    OPT_ROW(INT, step_tok, "0",
            "Most tokens of a prompt that a step computes. 0: the engine's own limit.",
            .unit = "tok", .min = 0, .max = 65536),
    OPT_ROW(INT, rounds, "9", "Number of steps to measure.", .min = 3, .max = 999),
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
    {"bound_tok_s", "tok/s", "",
     "speed that the read bandwidth (decode) or peak (prefill) of the machine card "
     "allows"},
    {"share_linear", "", "",
     "time of the matrices, output projection included / time of all operators"},
    {"share_attention", "", "",
     "time of attention (products, softmax, writing keys and values) / time of all "
     "operators"},
    {"share_memory", "", "",
     "time of norms, rotary embedding and copies / time of all operators"},
    {"share_mad", "", "", "median absolute deviation of share_linear"},
    {"wait_frac", "", "lower",
     "time waiting for other threads / time of the step; other programs increase it"},
    {"timed_frac", "", "higher", "time of operators and waiting / time of the step"},
    {0},
};

/* What is kept of each step: the time of each class of operator, its share of the operators'
 * time, and shares of the step's time. */
enum {
    LINEAR = STUDY_LINEAR,
    ATTENTION = STUDY_ATTENTION,
    N_CLASSES,
    OTHER = STUDY_OTHER,
    SHARE,
    WAIT = SHARE + OTHER + 1,
    TIMED
};
static const char *const class_names[N_CLASSES] = {"linear", "attention"};

struct cell {
    int64_t n_tok; /* of the prompt, or before the decoded one */
    struct model_bench engine;
    struct model_phase *phase;
    const struct opts *o;
    struct study_cell *out;
    struct study_compare steps; /* of one kind */
};

/* Operations and bytes of each class. */
struct class_cost {
    double flop[N_CLASSES], bytes[N_CLASSES];
};

/* By the paper's formulas, its slips included. */
static struct class_cost paper_work(const struct cell *f)
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
    return (struct class_cost){{w.linear_flop, w.attention_flop},
                               {w.linear_bytes, w.attention_bytes}};
}

/* What this engine executes. Bytes of the matrices are those of the weights that a step reads, and
 * as in the paper's formula the activations that go in and out of each. Attention is fused, so
 * its bytes are keys and values, and queries and results. */
static struct class_cost engine_work(const struct cell *f)
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
    struct class_cost w = {.flop = {[ATTENTION] = x.attn.flop}};

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
    struct cell *f = arg;
    double of[STUDY_N_CLASSES], all;

    TRY(study_engine_step(&f->engine, f->phase, f->o->phase == DECODE, f->n_tok,
                          &t->seconds, of));
    all = of[LINEAR] + of[ATTENTION] + of[OTHER];
    for (i = LINEAR; i <= OTHER; i++) {
        study_compare_put(&f->steps, i, of[i]);
        study_compare_put(&f->steps, SHARE + i, of[i] / all);
    }
    study_compare_put(&f->steps, WAIT, of[STUDY_WAIT] / t->seconds);
    study_compare_put(&f->steps, TIMED, (all + of[STUDY_WAIT]) / t->seconds);
    return OK;
}

static double median_of(const struct cell *f, int part)
{
    return study_compare_median(&f->steps, 0, part);
}

/* ---- what is reported ---- */

/* Attention computes in f32 or, where its variant is not exact, with numbers of 16 bits. */
static double peak_gflops(const struct cell *f, int kind, const json_t *card)
{
    const struct model *m = f->engine.model;
    enum kern_op attn = kern_kv_attn(model_cost_types_of(m).kv);
    enum kern_type type = model_weight_type(m);
    enum kern_precision precision = (enum kern_precision)f->o->precision;

    if (kind == ATTENTION) {
        precision = model_kern(m)->v[attn]->precision;
        type = precision == KERN_EXACT ? KERN_F32 : KERN_BF16;
    }
    return measure_card_peak_gflops(card, kern_type_name(type),
                                    kern_precision_name(precision), f->engine.budget.n);
}

/* Returns the seconds that the roof allows. */
static double report_class(const struct cell *f, int kind, const struct class_cost *mine,
                           const struct class_cost *papers)
{
    const json_t *card = study_machine(f->out);
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
        study_value(f->out, name, all[i].value, "no machine card with that bound");
        if (all[i].arithmetic)
            study_evidence(f->out, "model", name);
    }
    snprintf(each, sizeof(each), "%s_s_each", class_names[kind]);
    study_compare_series(&f->steps, each, "s", 0, kind);
    return flop * 1e-9 / roof;
}

static void report(const struct cell *f)
{
    static const char *const shares[] = {"share_linear_each", "share_attention_each",
                                         "share_memory_each", "wait_frac_each"};
    const double rows = f->o->phase == PREFILL ? (double)f->n_tok : 1;
    const struct class_cost mine = engine_work(f);
    const struct class_cost papers = paper_work(f);
    double roof_s = 0, step_s = f->steps.time[0].estimate;

    for (int kind = 0; kind < N_CLASSES; kind++)
        roof_s += report_class(f, kind, &mine, &papers);
    const struct study_number all[] = {
        {"other_s", median_of(f, OTHER)},
        {"step_s", step_s},
        {"tok_s", rows / step_s},
        {"roof_tok_s", rows / roof_s},
        {"roof_frac", roof_s / step_s},
        {"bound_tok_s", study_engine_bound_tok_s(&f->engine, study_machine(f->out),
                                                 f->o->phase == DECODE, f->n_tok,
                                                 (enum kern_precision)f->o->precision)},
        {"share_linear", median_of(f, SHARE + LINEAR)},
        {"share_attention", median_of(f, SHARE + ATTENTION)},
        {"share_memory", median_of(f, SHARE + OTHER)},
        {"share_mad", stats_mad(study_compare_part(&f->steps, 0, SHARE + LINEAR),
                                (size_t)f->steps.n_rounds)},
        {"wait_frac", median_of(f, WAIT)},
        {"timed_frac", median_of(f, TIMED)},
    };

    STUDY_VALUES(f->out, all, "no machine card with that bound");
    study_evidence(f->out, "model", "roof_tok_s bound_tok_s");
    for (int i = 0; i < 4; i++)
        study_compare_series(&f->steps, shares[i], "", 0, SHARE + i);
    study_engine_report(f->out, &f->engine);
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;

    f->n_tok = o->phase == DECODE && o->n_ctx_tok ? o->n_ctx_tok : o->n_tok;
    TRY(study_engine_open(
        &f->engine, o->model,
        &(struct model_bench_opts){.precision = (enum kern_precision)o->precision,
                                   .n_seqs = 1,
                                   .max_tok = f->n_tok + 1,
                                   .step_tok = o->step_tok,
                                   .seed = (uint64_t)o->seed}));
    TRY(study_engine_phase(&f->engine, &f->phase, 1, f->engine.budget.n));
    f->steps = (struct study_compare){.series = (const char *const[]){"step_s_each"},
                                      .doing = "steps"};
    TRY(study_compare(&f->steps, f->out, 1, o->rounds, trial, f));
    report(f);
    return OK;
}

static void end(struct cell *f)
{
    study_compare_close(&f->steps);
    model_phase_close(&f->phase);
    model_bench_close(&f->engine);
}

STUDY(mnn_operators, "time of a step by class of operator, next to MNN-LLM's counts",
      .wants_machine = true);
