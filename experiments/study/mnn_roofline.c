/* The roofline of Qwen-1.8B as MNN-LLM works it out by hand, to the digits it prints, with
 * what does not add up in it; then the same arithmetic for this machine.
 * Paper: MNN-LLM V. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/card.h"
#include "experiments/study/support/roofline.h"
#include "measure/card.h"

enum { PAPER, HOST };
enum { W4A8, BF16 };
enum { AS_PRINTED, CORRECTED };

#define OPTIONS(X)                                                                       \
    X(ENUM, machine, "paper", "Machine whose peaks and bandwidth are used.",             \
      .values = "paper|host")                                                            \
    X(ENUM, weights, "w4a8",                                                             \
      "Weights: 4 bits with int8 products, or bf16 computed exactly.",                   \
      .values = "w4a8|bf16")                                                             \
    X(ENUM, counts, "as_printed",                                                        \
      "as_printed: as the paper counts. corrected: one row through the output "          \
      "projection, rates and counts both in 10^9, 200 l h of other bytes as in the "     \
      "text.",                                                                           \
      .values = "as_printed|corrected")                                                  \
    X(INT, n_prompt_tok, "560", "Tokens of the prompt.", .min = 1, .max = 1 << 20)       \
    X(INT, n_ctx_tok, "585", "Tokens before the decoded one.", .min = 1, .max = 1 << 20)

#define RESULTS(X)                                                                       \
    X(linear_prefill_gflop, "2^30", 0, "operations of the matrices for a prompt")        \
    X(linear_decode_gflop, "2^30", 0, "operations of the matrices for a decoded token")  \
    X(linear_prefill_gb, "2^30 B", 0, "bytes moved for the matrices, prompt")            \
    X(linear_decode_gb, "2^30 B", 0, "bytes moved for the matrices, decoded token")      \
    X(attention_prefill_gflop, "2^30", 0, "operations of attention for a prompt")        \
    X(attention_decode_gflop, "2^30", 0, "operations of attention for a decoded token")  \
    X(attention_prefill_gb, "2^30 B", 0, "bytes moved for attention, prompt")            \
    X(attention_decode_gb, "2^30 B", 0, "bytes moved for attention, decoded token")      \
    X(other_prefill_gb, "2^30 B", 0, "bytes moved by all other operators, prompt")       \
    X(other_decode_gb, "2^30 B", 0, "bytes moved by all other operators, decoded token") \
    X(prefill_flop_per_byte, "FLOP/B", 0,                                                \
      "arithmetic intensity of the matrices, prompt")                                    \
    X(decode_flop_per_byte, "FLOP/B", 0,                                                 \
      "arithmetic intensity of the matrices, decoded token")                             \
    X(prefill_tok_s, "tok/s", HIGHER, "upper bound of the speed of a prompt")            \
    X(decode_tok_s, "tok/s", HIGHER, "upper bound of the speed of decode")               \
    X(digits_linear_prefill_gflop, "2^30", 0, "linear_prefill_gflop to two digits")      \
    X(digits_linear_decode_gflop, "2^30", 0, "linear_decode_gflop to two digits")        \
    X(digits_prefill_tok_s, "tok/s", 0, "prefill_tok_s without decimals")                \
    X(digits_decode_tok_s, "tok/s", 0, "decode_tok_s without decimals")                  \
    X(printed_prefill_tok_s, "tok/s", 0, "prefill_tok_s as the paper prints it")         \
    X(printed_decode_tok_s, "tok/s", 0, "decode_tok_s as the paper prints it")           \
    X(n_slips, "", 0,                                                                    \
      "number of things that do not add up in the paper; the note `slips` lists them")   \
    X(slip_last_row_gflop, "2^30", 0,                                                    \
      "linear_prefill_gflop with one row through the output projection")                 \
    X(slip_text_other_gb, "2^30 B", 0,                                                   \
      "other_prefill_gb by the text's 200 l h in place of 400 l h")                      \
    X(slip_one_unit_prefill_tok_s, "tok/s", 0, "prefill_tok_s, work and rates in 10^9")  \
    X(slip_one_unit_decode_tok_s, "tok/s", 0, "decode_tok_s, work and rates in 10^9")    \
    X(reached_prefill_frac, "", 0, "speed that the paper measured / prefill_tok_s")      \
    X(reached_decode_frac, "", 0, "speed that the paper measured / decode_tok_s")        \
    X(linear_rate, "GFLOP/s", 0, "peak for the matrices")                                \
    X(attention_rate, "GFLOP/s", 0, "peak for attention")                                \
    X(gbps, "GB/s", 0, "bandwidth")

FRAME_TYPES;

struct mnn_roofline {
    FRAME_CELL;
};

/* The machine and the results that the paper prints. */
static const struct study_roofline_machine paper = {2784, 352, 99.274};
#define PAPER_PREFILL_TOK_S   668.31
#define PAPER_DECODE_TOK_S    105.26
#define PAPER_PREFILL_REACHED 638.03
#define PAPER_DECODE_REACHED  99.31

/* The slips of section V; each is an option or a metric here. */
static const char *const slips[] = {
    "The output projection is counted for all 560 rows of the prompt; generation needs "
    "the last one: 1267.14 in place of 1591.13 units.",
    "Other operators: the text says 200 l h bytes a block, the printed 10.2539 and "
    "0.01831 units are those of 400 l h.",
    "Bytes of a decoded token: 0.71 in the table, 0.74 in the intensity 2.84 / 0.74.",
    "Units of work are 2^30, rates are 10^9 a second, and one is divided by the other: "
    "in one unit the bounds are 622.08 and 97.67 tok/s, and the measured 638.03 and "
    "99.31 "
    "exceed them.",
    "The formulas give 667.95 and 104.87 tok/s, the rounded inputs 667.97 and 105.80; "
    "neither gives the digits after the point of 668.31 and 105.26.",
    "1.747 units of bytes are printed as 1.74, 0.7134 as 0.71, 57.576 as 57.57: cut, not "
    "rounded; 0.5784 as 0.58: rounded.",
    "Bandwidth is printed as 99.274 Gbps; it is GB/s, as the numbers need.",
    "sdot and smmla both have 2784 GFLOP/s; an sdot does half the work of an smmla.",
};

static struct study_roofline_machine machine_of(const struct opts *o, const json_t *card,
                                                const char **why)
{
    struct study_roofline_machine m = paper;
    struct cpu_budget b;

    *why = "the machine card lacks the peak or the bandwidth";
    if (o->machine == PAPER) {
        if (o->weights == BF16)
            m.linear_rate = m.attention_rate; /* widened and multiplied by fmla */
        return m;
    }
    m = (struct study_roofline_machine){NAN, NAN, NAN};
    if (!card || cpu_budget_get(&b) != OK)
        return m;
    m.gbps = measure_card_read_gbps(card, b.n);
    m.attention_rate = measure_card_peak_gflops(card, "f32", "exact", b.n);
    m.linear_rate = o->weights == BF16
                        ? measure_card_peak_gflops(card, "bf16", "exact", b.n)
                        : measure_card_range(card, "peak_i8_dot_", b.n, why).most;
    return m;
}

static void report_counts(struct mnn_roofline *c, const struct study_roofline_work *p,
                          const struct study_roofline_work *d)
{
    const double g = ROOFLINE_G;

    c->r->linear_prefill_gflop = p->linear_flop / g;
    c->r->linear_decode_gflop = d->linear_flop / g;
    c->r->linear_prefill_gb = p->linear_bytes / g;
    c->r->linear_decode_gb = d->linear_bytes / g;
    c->r->attention_prefill_gflop = p->attention_flop / g;
    c->r->attention_decode_gflop = d->attention_flop / g;
    c->r->attention_prefill_gb = p->attention_bytes / g;
    c->r->attention_decode_gb = d->attention_bytes / g;
    c->r->other_prefill_gb = p->other_bytes / g;
    c->r->other_decode_gb = d->other_bytes / g;
    c->r->prefill_flop_per_byte = p->linear_flop / p->linear_bytes;
    c->r->decode_flop_per_byte = d->linear_flop / d->linear_bytes;
}

static void report_bounds(struct mnn_roofline *c, const struct study_roofline_work *p,
                          const struct study_roofline_work *d)
{
    const struct opts *o = c->o;
    const char *why;
    struct study_roofline_machine m = machine_of(o, study_machine(c->out), &why);
    double g = o->machine == PAPER && o->counts == AS_PRINTED ? ROOFLINE_G : 1e9;
    bool printed = o->machine == PAPER && o->weights == W4A8 && o->n_prompt_tok == 560 &&
                   o->n_ctx_tok == 585;
    double prefill = (double)o->n_prompt_tok / study_roofline_seconds(p, &m, g);
    double decode = 1 / study_roofline_seconds(d, &m, g);

    c->r->prefill_tok_s = prefill;
    c->r->decode_tok_s = decode;
    c->r->linear_rate = m.linear_rate;
    c->r->attention_rate = m.attention_rate;
    c->r->gbps = m.gbps;
    frame_why(c->f, NULL, why);
    c->r->printed_prefill_tok_s = printed ? PAPER_PREFILL_TOK_S : NAN;
    c->r->printed_decode_tok_s = printed ? PAPER_DECODE_TOK_S : NAN;
    c->r->reached_prefill_frac = printed ? PAPER_PREFILL_REACHED / prefill : NAN;
    c->r->reached_decode_frac = printed ? PAPER_DECODE_REACHED / decode : NAN;
    frame_why(c->f, NULL, "the paper prints it for its own case only");
    if (o->machine != PAPER) /* the rates are of this machine's card */
        study_evidence(c->out, "measured", "linear_rate attention_rate gbps");
}

static double to_digits(double x, int n)
{
    double scale = pow(10, n);

    return round(x * scale) / scale;
}

/* The formulas to the digits that the paper prints, and what they give without each of
 * its slips that changes a number. */
static void report_paper(struct mnn_roofline *c, const struct study_roofline_model *m,
                         const struct study_roofline_work *p,
                         const struct study_roofline_work *d)
{
    const struct opts *o = c->o;
    const struct study_roofline_opts fixed = {.head_rows = 1, .other_factor = 200};
    double n = (double)o->n_prompt_tok, g = ROOFLINE_G;
    bool own = o->machine == PAPER && o->counts == AS_PRINTED && o->weights == W4A8;
    struct study_roofline_work f;

    study_roofline_prefill(&f, m, n, &fixed);
    c->r->n_slips = own ? sizeof(slips) / sizeof(slips[0]) : NAN;
    c->r->digits_linear_prefill_gflop = own ? to_digits(p->linear_flop / g, 2) : NAN;
    c->r->digits_linear_decode_gflop = own ? to_digits(d->linear_flop / g, 2) : NAN;
    c->r->digits_prefill_tok_s =
        own ? round(n / study_roofline_seconds(p, &paper, g)) : NAN;
    c->r->digits_decode_tok_s =
        own ? round(1 / study_roofline_seconds(d, &paper, g)) : NAN;
    c->r->slip_last_row_gflop = own ? f.linear_flop / g : NAN;
    c->r->slip_text_other_gb = own ? f.other_bytes / g : NAN;
    c->r->slip_one_unit_prefill_tok_s =
        own ? n / study_roofline_seconds(p, &paper, 1e9) : NAN;
    c->r->slip_one_unit_decode_tok_s =
        own ? 1 / study_roofline_seconds(d, &paper, 1e9) : NAN;
    frame_why(c->f, NULL,
              "of the paper's own case only: its machine, w4a8, counts as printed");
}

static void report_slips(struct mnn_roofline *c)
{
    json_t *list = json_array();
    bool whole = true;
    char *text;

    for (size_t i = 0; i < sizeof(slips) / sizeof(slips[0]); i++)
        whole &= json_array_append_new(list, json_string(slips[i])) == 0;
    text = whole ? json_dumps(list, JSON_COMPACT) : NULL;
    study_note_text(c->out, "slips", text);
    free(text);
    json_decref(list);
}

static int mnn_roofline_run(struct mnn_roofline *c)
{
    const struct opts *o = c->o;
    bool printed = o->counts == AS_PRINTED;
    struct study_roofline_model m = study_roofline_qwen_1_8b;
    struct study_roofline_opts count = {.head_rows =
                                            printed ? (double)o->n_prompt_tok : 1,
                                        .other_factor = printed ? 400 : 200};
    struct study_roofline_work prefill, decode;

    m.weight_bytes = o->weights == BF16 ? 2 : m.weight_bytes;
    study_roofline_prefill(&prefill, &m, (double)o->n_prompt_tok, &count);
    study_roofline_decode(&decode, &m, (double)o->n_ctx_tok, &count);
    report_counts(c, &prefill, &decode);
    report_bounds(c, &prefill, &decode);
    report_paper(c, &m, &prefill, &decode);
    report_slips(c);
    return OK;
}

STUDY(mnn_roofline,
      "MNN-LLM's roofline of Qwen-1.8B, to the printed digits, and this machine's",
      .wants_machine = true);
