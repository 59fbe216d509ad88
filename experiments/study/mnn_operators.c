/* Where the time of a step goes, by class of operator, phase and length of the context; and
 * what the matrices and attention compute, move and reach: MNN-LLM's tables of FLOP, memory
 * and intensity by its formulas, next to the times of a step of this engine.
 * Paper: MNN-LLM IV-A, V-B. */
#include <math.h>
#include <stdio.h>

#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/roofline.h"
#include "experiments/study/support/options.h"
#include "measure/card.h"

enum { PREFILL, DECODE };

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    X(ENUM, phase, "decode", "A prompt, or one further token.",                          \
      .values = "prefill|decode")                                                        \
    X(INT, n_tok, "128", "Tokens of the prompt, or before the decoded token.",           \
      .unit = "tok", .min = 1, .max = 65536)                                             \
    X(INT, n_ctx_tok, "0", "Tokens before the decoded one. 0: n_tok.", .unit = "tok",    \
      .min = 0, .max = 65536)                                                            \
    X(INT, step_tok, "0",                                                                \
      "Most tokens of a prompt that a step computes. 0: the engine's own limit.",        \
      .unit = "tok", .min = 0, .max = 65536)                                             \
    X(INT, rounds, "9", "Number of steps to measure.", .min = 3, .max = 999)             \
    X(INT, seed, "1", "Seed of the token ids.")

#define CLASS_RESULTS(X, class, what)                                                    \
    X(class##_gflop, "GFLOP", MODEL, "operations of " what " that the engine executes")  \
    X(class##_gb, "GB", MODEL,                                                           \
      "bytes of " what " by the formula, with this engine's types")                      \
    X(class##_flop_per_byte, "FLOP/B", MODEL, #class "_gflop / " #class "_gb")           \
    X(class##_s, "s", LOWER, "time of " what " in a step, without waiting")              \
    X(class##_gflops, "GFLOP/s", HIGHER, #class "_gflop / " #class "_s")                 \
    X(class##_gbps, "GB/s", HIGHER, #class "_gb / " #class "_s")                         \
    X(class##_roof_gflops, "GFLOP/s", MODEL,                                             \
      "what peak and read bandwidth of the machine card allow at that intensity")        \
    X(class##_roof_frac, "", HIGHER, #class "_gflops / " #class "_roof_gflops")          \
    X(class##_paper_gflop, "2^30", MODEL,                                                \
      "operations of " what " by the paper's formula, with its types")                   \
    X(class##_paper_gb, "2^30 B", MODEL, "bytes of " what " by the same")                \
    X(class##_paper_flop_per_byte, "FLOP/B", MODEL, "intensity of " what " by the same")
#define RESULTS(X)                                                                       \
    CLASS_RESULTS(X, linear, "the matrices")                                             \
    CLASS_RESULTS(X, attention, "attention")                                             \
    X(other_s, "s", LOWER,                                                               \
      "time of norms, rotary embedding, copies and rounding activations, without "       \
      "waiting")                                                                         \
    X(step_s, "s", LOWER, "time of the step")                                            \
    X(tok_s, "tok/s", HIGHER, "tokens of the step / its time")                           \
    X(roof_tok_s, "tok/s", MODEL,                                                        \
      "speed if matrices and attention, one after the other, reached their roofs and "   \
      "nothing else took time")                                                          \
    X(roof_frac, "", HIGHER, "tok_s / roof_tok_s")                                       \
    X(bound_tok_s, "tok/s", MODEL,                                                       \
      "speed that the read bandwidth (decode) or peak (prefill) of the machine card "    \
      "allows")                                                                          \
    X(share_linear, "", 0,                                                               \
      "time of the matrices, output projection included / time of all operators")        \
    X(share_attention, "", 0,                                                            \
      "time of attention (products, softmax, writing keys and values) / time of all "    \
      "operators")                                                                       \
    X(share_memory, "", 0,                                                               \
      "time of norms, rotary embedding and copies / time of all operators")              \
    X(share_mad, "", 0, "median absolute deviation of share_linear")                     \
    X(wait_frac, "", LOWER,                                                              \
      "time waiting for other threads / time of the step; other programs increase it")   \
    X(timed_frac, "", HIGHER, "time of operators and waiting / time of the step")

FRAME_TYPES;

enum {
    LINEAR = STUDY_LINEAR,
    ATTENTION = STUDY_ATTENTION,
    N_CLASSES,
    OTHER = STUDY_OTHER
};
static const char *const class_names[N_CLASSES] = {"linear", "attention"};

struct mnn_operators {
    FRAME_CELL;
    int64_t n_tok; /* of the prompt, or before the decoded one */
    struct model_bench engine;
    struct model_phase *phase;
};

/* Operations and bytes of each class. */
struct class_cost {
    double flop[N_CLASSES], bytes[N_CLASSES];
};

/* By the paper's formulas, its slips included. */
static struct class_cost paper_work(const struct mnn_operators *f)
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

/* The work that this engine executes. Bytes of the matrices are those of the weights that a step
 * reads, and as in the paper's formula the activations that go in and out of each. Attention is
 * fused, so its bytes are keys and values, and queries and results. */
static struct class_cost engine_work(const struct mnn_operators *f)
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

static int mnn_operators_trial(void *arg, int one, struct measure_trial *t)
{
    struct mnn_operators *c = arg;
    double of[STUDY_N_CLASSES], all;

    (void)one;
    TRY(study_engine_step(&c->engine, c->phase, c->o->phase == DECODE, c->n_tok,
                          &t->seconds, of));
    all = of[LINEAR] + of[ATTENTION] + of[OTHER];
    frame_put(c->f, &c->r->linear_s, of[LINEAR]);
    frame_put(c->f, &c->r->attention_s, of[ATTENTION]);
    frame_put(c->f, &c->r->other_s, of[OTHER]);
    frame_put(c->f, &c->r->share_linear, of[LINEAR] / all);
    frame_put(c->f, &c->r->share_attention, of[ATTENTION] / all);
    frame_put(c->f, &c->r->share_memory, of[OTHER] / all);
    frame_put(c->f, &c->r->wait_frac, of[STUDY_WAIT] / t->seconds);
    frame_put(c->f, &c->r->timed_frac, (all + of[STUDY_WAIT]) / t->seconds);
    return OK;
}

/* ---- what is reported ---- */

/* Attention computes in f32 or, where its variant is not exact, with numbers of 16 bits. */
static double peak_gflops(const struct mnn_operators *c, int kind, const json_t *card)
{
    const struct model *m = c->engine.model;
    enum kern_op attn = kern_kv_attn(model_cost_types_of(m).kv);
    enum kern_type type = model_weight_type(m);
    enum kern_precision precision = (enum kern_precision)c->o->precision;

    if (kind == ATTENTION) {
        precision = model_kern(m)->v[attn]->precision;
        type = precision == KERN_EXACT ? KERN_F32 : KERN_BF16;
    }
    return measure_card_peak_gflops(card, kern_type_name(type),
                                    kern_precision_name(precision), c->engine.budget.n);
}

/* Returns the seconds that the roof allows. */
static double report_class(struct mnn_operators *c, int kind,
                           const struct class_cost *mine, const struct class_cost *papers)
{
    const json_t *card = study_machine(c->out);
    double flop = mine->flop[kind], bytes = mine->bytes[kind], roof = NAN;
    double s = kind == LINEAR ? c->r->linear_s : c->r->attention_s;
    char each[48];

    if (card)
        roof = study_roof_gflops(peak_gflops(c, kind, card),
                                 flop / bytes *
                                     measure_card_read_gbps(card, c->engine.budget.n));
    const struct {
        const char *what;
        double value;
    } all[] = {
        {"gflop", flop * 1e-9},
        {"gb", bytes * 1e-9},
        {"flop_per_byte", flop / bytes},
        {"gflops", flop / s * 1e-9},
        {"gbps", bytes / s * 1e-9},
        {"roof_gflops", roof},
        {"roof_frac", flop / s * 1e-9 / roof},
        {"paper_gflop", papers->flop[kind] / ROOFLINE_G},
        {"paper_gb", papers->bytes[kind] / ROOFLINE_G},
        {"paper_flop_per_byte", papers->flop[kind] / papers->bytes[kind]},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        *frame_named(c->f, "%s_%s", class_names[kind], all[i].what) = all[i].value;
    snprintf(each, sizeof(each), "%s_s_each", class_names[kind]);
    frame_series(c->f, each, "s", frame_named(c->f, "%s_s", class_names[kind]));
    return flop * 1e-9 / roof;
}

static void mnn_operators_report(struct mnn_operators *c)
{
    const double rows = c->o->phase == PREFILL ? (double)c->n_tok : 1;
    const struct class_cost mine = engine_work(c);
    const struct class_cost papers = paper_work(c);
    struct results *r = c->r;
    double roof_s = 0;

    frame_times_series(c->f, "step_s_each", 0);
    for (int kind = 0; kind < N_CLASSES; kind++)
        roof_s += report_class(c, kind, &mine, &papers);
    r->step_s = frame_seconds(c->f, 0);
    r->tok_s = rows / r->step_s;
    r->roof_tok_s = rows / roof_s;
    r->roof_frac = roof_s / r->step_s;
    r->bound_tok_s =
        study_engine_bound_tok_s(&c->engine, study_machine(c->out), c->o->phase == DECODE,
                                 c->n_tok, (enum kern_precision)c->o->precision);
    r->share_mad = stats_mad(frame_each(c->f, &r->share_linear), (size_t)c->f->n_rounds);
    frame_why(c->f, NULL, "no machine card with that bound");
    frame_series(c->f, "share_linear_each", "", &r->share_linear);
    frame_series(c->f, "share_attention_each", "", &r->share_attention);
    frame_series(c->f, "share_memory_each", "", &r->share_memory);
    frame_series(c->f, "wait_frac_each", "", &r->wait_frac);
    study_engine_report(c->out, &c->engine);
}

static int mnn_operators_run(struct mnn_operators *c)
{
    const struct opts *o = c->o;

    c->n_tok = o->phase == DECODE && o->n_ctx_tok ? o->n_ctx_tok : o->n_tok;
    TRY(study_engine_open(
        &c->engine, o->model,
        &(struct model_bench_opts){.precision = (enum kern_precision)o->precision,
                                   .n_seqs = 1,
                                   .max_tok = c->n_tok + 1,
                                   .step_tok = o->step_tok,
                                   .seed = (uint64_t)o->seed}));
    FRAME_CLOSE(c->f, model_bench_close, &c->engine);
    FRAME_CLOSE(c->f, model_phase_close, &c->phase);
    TRY(study_engine_phase(&c->engine, &c->phase, 1, c->engine.budget.n));
    TRY(frame_rounds(c->f, "steps", 1, o->rounds, mnn_operators_trial, c));
    mnn_operators_report(c);
    return OK;
}

STUDY(mnn_operators, "time of a step by class of operator, next to MNN-LLM's counts",
      .wants_machine = true);
