/* Prefill and decode at long contexts: how far attention slows a prompt down compared with a
 * short one, and the share of peak and bandwidth that is left. Short prompt, long prompt, tokens
 * and read bandwidth are measured in turn. */
#include <math.h>

#include "experiments/frame/frame.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/options.h"
#include "measure/card.h"

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    OPTION_KV_TYPE(X, "bf16")                                                            \
    X(INT, n_ctx_tok, "4096", "Tokens of the prompt, and before the decoded ones.",      \
      .min = 1, .max = 1 << 20)                                                          \
    X(INT, n_short_tok, "512", "Tokens of the prompt to compare with.", .min = 1,        \
      .max = 1 << 20)                                                                    \
    X(INT, n_steps, "8", "Token steps that are timed in a round.", .min = 1,             \
      .max = 4096)                                                                       \
    X(INT, rounds, "5", "Rounds.", .min = 3, .max = 99)                                  \
    X(F64, read_s, "0.3", "Time of one measurement of the bandwidth.", .unit = "s",      \
      .min = 0.01, .max = 60)                                                            \
    X(INT, read_mb, "0", "Size of the buffer to read. 0: as for the machine card.",      \
      .unit = "MiB", .min = 0, .max = 1 << 20)

#define RESULTS(X)                                                                       \
    X(prefill_tok_s, "tok/s", HIGHER, "speed of a prompt of n_ctx_tok tokens")           \
    X(short_tok_s, "tok/s", HIGHER, "speed of a prompt of n_short_tok tokens")           \
    X(prefill_over_short, "", HIGHER, "prefill_tok_s / short_tok_s")                     \
    X(prefill_roof_frac, "", HIGHER,                                                     \
      "time of a prompt at the peaks that its precision allows, of the matrices' type "  \
      "and, for attention, of bf16 / its time")                                          \
    X(attention_frac, "", LOWER, "share of attention in the time of a prompt")           \
    X(attention_gflops, "GFLOP/s", HIGHER, "operations of attention / its time")         \
    X(attention_peak_frac, "", HIGHER,                                                   \
      "attention_gflops / peak of bf16 in that precision")                               \
    X(decode_tok_s, "tok/s", HIGHER, "tokens a second after n_ctx_tok others")           \
    X(decode_gbps, "GB/s", HIGHER, "bytes that a token must read / its time")            \
    X(decode_read_gbps, "GB/s", 0, "read bandwidth measured in the rounds")              \
    X(decode_bandwidth_frac, "", HIGHER, "decode_gbps / read bandwidth of the round")    \
    X(kv_bytes_frac, "", MODEL, "share of keys and values in those bytes")

FRAME_TYPES;

enum { READ, DECODE, SHORT, LONG, N_MEASURED };

struct long_context {
    FRAME_CELL;
    struct model_bench engine;
    struct model_phase *phase;
    double attention_s; /* of the long prompt */
    struct model_cost token, prompt;
};

/* Seconds of a token; a first one wakes the team and does not count. */
static int decode(struct long_context *c, double *seconds)
{
    double one, all = 0;

    for (int64_t i = 0; i <= c->o->n_steps; i++) {
        TRY(model_bench_steps_decode(&c->engine.steps, c->phase, c->o->n_ctx_tok, &one));
        all += i > 0 ? one : 0;
    }
    *seconds = all / (double)c->o->n_steps;
    return OK;
}

static int long_context_trial(void *arg, int i, struct measure_trial *t)
{
    struct long_context *c = arg;
    const struct opts *o = c->o;
    struct study_threads threads = {
        .budget = c->engine.budget, .team = c->engine.team, .n = c->engine.budget.n};
    double of[STUDY_N_CLASSES] = {0};

    if (i == READ) /* what a token must read, at the bandwidth of now */
        t->seconds = 1e-9 * c->token.read_bytes /
                     study_read_gbps(&threads, (size_t)o->read_mb << 20, o->read_s);
    else if (i == DECODE)
        TRY(decode(c, &t->seconds));
    else
        TRY(study_engine_step(&c->engine, c->phase, false,
                              i == LONG ? o->n_ctx_tok : o->n_short_tok, &t->seconds,
                              of));
    if (i == LONG)
        frame_put(c->f, &c->attention_s, of[STUDY_ATTENTION]);
    return OK;
}

static void long_context_report(struct long_context *c)
{
    const struct opts *o = c->o;
    const json_t *card = study_machine(c->out);
    double long_s = frame_seconds(c->f, LONG), short_s = frame_seconds(c->f, SHORT);
    double decode_s = frame_seconds(c->f, DECODE);
    struct results *r = c->r;
    const char *precision = kern_precision_name((enum kern_precision)o->precision);
    const char *weights = kern_type_name(model_weight_type(c->engine.model));
    double peak = NAN, attention_peak = NAN;

    if (card) {
        peak = measure_card_peak_gflops(card, weights, precision, c->engine.budget.n);
        attention_peak =
            measure_card_peak_gflops(card, "bf16", precision, c->engine.budget.n);
    }
    r->prefill_tok_s = (double)o->n_ctx_tok / long_s;
    r->short_tok_s = (double)o->n_short_tok / short_s;
    r->prefill_over_short = r->prefill_tok_s / r->short_tok_s;
    r->prefill_roof_frac = 1e-9 *
                           ((c->prompt.flop - c->prompt.attn.flop) / peak +
                            c->prompt.attn.flop / attention_peak) /
                           long_s;
    r->attention_frac = c->attention_s / long_s;
    r->attention_gflops = c->prompt.attn.flop / c->attention_s * 1e-9;
    r->attention_peak_frac = r->attention_gflops / attention_peak;
    r->decode_tok_s = 1 / decode_s;
    r->decode_gbps = 1e-9 * c->token.read_bytes / decode_s;
    r->decode_read_gbps = 1e-9 * c->token.read_bytes / frame_seconds(c->f, READ);
    r->kv_bytes_frac = c->token.kv_read_bytes / c->token.read_bytes;
    frame_why(c->f, NULL, "no machine card with that bound");
    frame_ratio(c->f, &c->r->decode_bandwidth_frac, READ, DECODE, 0);
    frame_times_series(c->f, "read_s_each", READ);
    frame_times_series(c->f, "decode_s_each", DECODE);
    frame_times_series(c->f, "short_s_each", SHORT);
    frame_times_series(c->f, "long_s_each", LONG);
    study_engine_report(c->out, &c->engine);
}

static int long_context_run(struct long_context *c)
{
    const struct opts *o = c->o;
    int64_t most = o->n_ctx_tok > o->n_short_tok ? o->n_ctx_tok : o->n_short_tok;
    const struct model_config *config;
    struct model_cost_types types;

    FRAME_CLOSE(c->f, model_bench_close, &c->engine);
    FRAME_CLOSE(c->f, model_phase_close, &c->phase);
    TRY(study_engine_open(
        &c->engine, o->model,
        &(struct model_bench_opts){.precision = (enum kern_precision)o->precision,
                                   .kv_type = (enum kern_kv_type)o->kv_type,
                                   .n_seqs = 1,
                                   .one_rank = true,
                                   .max_tok = most + 1,
                                   .seed = 1}));
    TRY(study_engine_phase(&c->engine, &c->phase, 1, c->engine.budget.n));
    config = model_config_of(c->engine.model);
    types = model_cost_types_of(c->engine.model);
    c->token = model_cost_decode(config, types, (double)o->n_ctx_tok + 1, 1);
    c->prompt = model_cost_prefill(config, types, o->n_ctx_tok, 0);
    TRY(frame_rounds(c->f, "prompts, tokens and bandwidth in turn", N_MEASURED, o->rounds,
                     long_context_trial, c));
    long_context_report(c);
    return OK;
}

STUDY(long_context, "prefill and decode at long contexts, next to peak and bandwidth",
      .wants_machine = true);
