/* Prefill and decode at long contexts: how far attention slows a prompt down compared with a
 * short one, and the share of peak and bandwidth that is left. Short prompt, long prompt, tokens
 * and read bandwidth are measured in turn. */
#include <math.h>

#include "experiments/study/support/compare.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/rows.h"
#include "measure/card.h"

struct opts {
    char *model;
    int precision, kv_type;
    int64_t n_ctx_tok, n_short_tok, n_steps, rounds, read_mb;
    double read_s;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_PRECISION,
    ROW_KV_TYPE("bf16"),
    OPT_ROW(INT, n_ctx_tok, "4096", "Tokens of the prompt, and before the decoded ones.",
            .min = 1, .max = 1 << 20),
    OPT_ROW(INT, n_short_tok, "512", "Tokens of the prompt to compare with.", .min = 1,
            .max = 1 << 20),
    OPT_ROW(INT, n_steps, "8", "Token steps that are timed in a round.", .min = 1,
            .max = 4096),
    OPT_ROW(INT, rounds, "5", "Rounds.", .min = 3, .max = 99),
    OPT_ROW(F64, read_s, "0.3", "Time of one measurement of the bandwidth.", .unit = "s",
            .min = 0.01, .max = 60),
    OPT_ROW(INT, read_mb, "0", "Size of the buffer to read. 0: as for the machine card.",
            .unit = "MiB", .min = 0, .max = 1 << 20),
    {0},
};

static const struct study_metric metrics[] = {
    {"prefill_tok_s", "tok/s", "higher", "speed of a prompt of n_ctx_tok tokens"},
    {"short_tok_s", "tok/s", "higher", "speed of a prompt of n_short_tok tokens"},
    {"prefill_over_short", "", "higher", "prefill_tok_s / short_tok_s"},
    {"prefill_roof_frac", "", "higher",
     "time of a prompt at the peaks that its precision allows, of the matrices' type "
     "and, "
     "for attention, of bf16 / its time"},
    {"attention_frac", "", "lower", "share of attention in the time of a prompt"},
    {"attention_gflops", "GFLOP/s", "higher", "operations of attention / its time"},
    {"attention_peak_frac", "", "higher",
     "attention_gflops / peak of bf16 in that precision"},
    {"decode_tok_s", "tok/s", "higher", "tokens a second after n_ctx_tok others"},
    {"decode_gbps", "GB/s", "higher", "bytes that a token must read / its time"},
    {"decode_read_gbps", "GB/s", "", "read bandwidth measured in the rounds"},
    {"decode_bandwidth_frac", "", "higher", "decode_gbps / read bandwidth of the round"},
    {"kv_bytes_frac", "", "", "share of keys and values in those bytes"},
    {0},
};

enum { READ, DECODE, SHORT, LONG, N_MEASURED };
enum { ATTENTION_S, N_PARTS };

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct model_bench engine;
    struct model_phase *phase;
    struct study_compare rounds;
    struct model_cost token, prompt;
};

/* Seconds of a token; a first one wakes the team and does not count. */
static int decode(struct cell *f, double *seconds)
{
    double one, all = 0;

    for (int64_t i = 0; i <= f->o->n_steps; i++) {
        TRY(model_bench_steps_decode(&f->engine.steps, f->phase, f->o->n_ctx_tok, &one));
        all += i > 0 ? one : 0;
    }
    *seconds = all / (double)f->o->n_steps;
    return OK;
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;
    const struct opts *o = f->o;
    struct study_threads threads = {
        .budget = f->engine.budget, .team = f->engine.team, .n = f->engine.budget.n};
    double of[STUDY_N_CLASSES] = {0};

    if (i == READ) /* what a token must read, at the bandwidth of now */
        t->seconds = 1e-9 * f->token.read_bytes /
                     study_read_gbps(&threads, (size_t)o->read_mb << 20, o->read_s);
    else if (i == DECODE)
        TRY(decode(f, &t->seconds));
    else
        TRY(study_engine_step(&f->engine, f->phase, false,
                              i == LONG ? o->n_ctx_tok : o->n_short_tok, &t->seconds,
                              of));
    study_compare_put(&f->rounds, ATTENTION_S, of[STUDY_ATTENTION]);
    return OK;
}

static void report(const struct cell *f)
{
    const struct opts *o = f->o;
    const json_t *card = study_machine(f->out);
    const struct measure_report *time = f->rounds.time;
    const char *precision = kern_precision_name((enum kern_precision)o->precision);
    const char *weights = kern_type_name(model_weight_type(f->engine.model));
    double attention_s = study_compare_median(&f->rounds, LONG, ATTENTION_S);
    double gflops = f->prompt.attn.flop / attention_s * 1e-9;
    double peak = NAN, attention_peak = NAN;

    if (card) {
        peak = measure_card_peak_gflops(card, weights, precision, f->engine.budget.n);
        attention_peak =
            measure_card_peak_gflops(card, "bf16", precision, f->engine.budget.n);
    }
    const struct study_number all[] = {
        {"prefill_tok_s", (double)o->n_ctx_tok / time[LONG].estimate},
        {"short_tok_s", (double)o->n_short_tok / time[SHORT].estimate},
        {"prefill_over_short", (double)o->n_ctx_tok / time[LONG].estimate /
                                   (double)o->n_short_tok * time[SHORT].estimate},
        {"prefill_roof_frac", 1e-9 *
                                  ((f->prompt.flop - f->prompt.attn.flop) / peak +
                                   f->prompt.attn.flop / attention_peak) /
                                  time[LONG].estimate},
        {"attention_frac", attention_s / time[LONG].estimate},
        {"attention_gflops", gflops},
        {"attention_peak_frac", gflops / attention_peak},
        {"decode_tok_s", 1 / time[DECODE].estimate},
        {"decode_gbps", 1e-9 * f->token.read_bytes / time[DECODE].estimate},
        {"decode_read_gbps", 1e-9 * f->token.read_bytes / time[READ].estimate},
        {"kv_bytes_frac", f->token.kv_read_bytes / f->token.read_bytes},
    };

    study_compare_ratio(&f->rounds, "decode_bandwidth_frac", READ, DECODE, 0);
    STUDY_VALUES(f->out, all, "no machine card with that bound");
    study_evidence(f->out, "model", "kv_bytes_frac");
    study_engine_report(f->out, &f->engine);
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;
    int64_t most = o->n_ctx_tok > o->n_short_tok ? o->n_ctx_tok : o->n_short_tok;
    const struct model_config *c;
    struct model_cost_types types;

    TRY(study_engine_open(
        &f->engine, o->model,
        &(struct model_bench_opts){.precision = (enum kern_precision)o->precision,
                                   .kv_type = (enum kern_kv_type)o->kv_type,
                                   .n_seqs = 1,
                                   .one_rank = true,
                                   .max_tok = most + 1,
                                   .seed = 1}));
    TRY(study_engine_phase(&f->engine, &f->phase, 1, f->engine.budget.n));
    c = model_config_of(f->engine.model);
    types = model_cost_types_of(f->engine.model);
    f->token = model_cost_decode(c, types, (double)o->n_ctx_tok + 1, 1);
    f->prompt = model_cost_prefill(c, types, o->n_ctx_tok, 0);
    f->rounds = (struct study_compare){
        .series = (const char *const[]){"read_s_each", "decode_s_each", "short_s_each",
                                        "long_s_each"},
        .doing = "prompts, tokens and bandwidth in turn"};
    TRY(study_compare(&f->rounds, f->out, N_MEASURED, o->rounds, trial, f));
    report(f);
    return OK;
}

static void end(struct cell *f)
{
    study_compare_close(&f->rounds);
    model_phase_close(&f->phase);
    model_bench_close(&f->engine);
}

STUDY(long_context, "prefill and decode at long contexts, next to peak and bandwidth",
      .wants_machine = true);
