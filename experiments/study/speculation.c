/* Speculative decoding, predicted before it is built: from which acceptance of a draft's tokens on
 * it is faster than decoding one token a step. The prediction is made from the times of a step of
 * one row and of one of draft_tok + 1 rows; it is checked with a draft that is a script: it
 * proposes the model's own next tokens, each with a given probability, else another one. Whatever
 * the draft proposes, the tokens are those of greedy decoding.
 *
 * A draft model of its own costs time, which draft_cost charges as a share of a step; a draft that
 * is looked up in the text costs nothing. Acceptance is of a token whose predecessors were
 * accepted. Not in the five papers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/options.h"

#define DRAFT_MAX 32

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    X(INT, draft_tok, "4", "Tokens that the draft proposes for each step.", .min = 1,    \
      .max = DRAFT_MAX)                                                                  \
    X(F64, draft_cost, "0",                                                              \
      "Time that a token of the draft is charged with, as a share of a step of one "     \
      "row.",                                                                            \
      .min = 0, .max = 10)                                                               \
    X(INT, n_prompt_tok, "64", "Prompt tokens.", .min = 1, .max = 65536)                 \
    X(INT, n_output_tok, "192", "Output tokens of a run.", .min = 8, .max = 65536)       \
    X(INT, rounds, "5", "Rounds of all acceptances, in turn.", .min = 3, .max = 99)      \
    X(BOOL, deterministic, "false",                                                      \
      "Compute the same bits in a step of several rows as in one of one row.")           \
    X(INT, seed, "1", "Seed of the prompt and of what the draft gets wrong.")

/* Chances with which a proposed token is the model's. */
#define CHANCES(Y, X)     Y(X, 0) Y(X, 20) Y(X, 40) Y(X, 60) Y(X, 80) Y(X, 100)
#define COUNT(X, percent) +1
enum { N_CHANCES = 0 CHANCES(COUNT, ) };
#define VALUE(X, percent) percent,
static const int chances[] = {CHANCES(VALUE, )}; /* in % */
#define CHANCE_RESULTS(X, percent)                                                       \
    X(speedup_a##percent, "x", HIGHER,                                                   \
      "decode speed with a draft that is right " #percent " % of the time / without")    \
    X(predicted_a##percent, "x", 0, "the same as predicted, for its acceptance")         \
    X(acceptance_a##percent, "", 0, "its acceptance")

#define RESULTS(X)                                                                       \
    CHANCES(CHANCE_RESULTS, X)                                                           \
    X(step_cost, "x", LOWER, "time of a step of draft_tok + 1 rows / of one row")        \
    X(breakeven_predicted, "%", LOWER,                                                   \
      "acceptance from which the draft pays, by the times of steps")                     \
    X(breakeven_measured, "%", LOWER, "the same, where the measured speeds cross 1")     \
    X(breakeven_error, "points", LOWER, "|measured - predicted|")                        \
    X(prediction_error, "%", LOWER, "most |measured / predicted - 1| of a speed-up")     \
    X(n_different, "tok", LOWER, "output tokens that are not those of greedy decoding")

FRAME_TYPES;

/* The alternatives, timed in turn: without a draft, single steps of many rows, each chance. */
enum { PLAIN, STEPS, CHANCE_0, N_WAYS = CHANCE_0 + N_CHANCES };

struct speculation {
    FRAME_CELL;
    struct model_bench engine;
    struct model_phase *phase;
    double acceptance[N_CHANCES], different[N_CHANCES]; /* of each chance */
    int32_t *prompt, *greedy; /* [n_prompt_tok], [n_output_tok + draft_tok + 1] */
    float *logits;            /* [draft_tok + 1, vocab] */
    struct model_chunk rows[DRAFT_MAX + 1];
    int32_t ids[DRAFT_MAX + 1];
    struct rng rng;
};

static int32_t argmax(const struct speculation *c, int row)
{
    int vocab = model_config_of(c->engine.model)->vocab;
    const struct kern_variant *v = model_kern(c->engine.model)->v[KERN_ARGMAX];

    return (int32_t)v->fn.argmax(c->logits + (int64_t)row * vocab, vocab);
}

/* A step of the n tokens in c->ids, the first at place pos of the sequence: rows of one sequence,
 * each of which attends to those before it. */
static int speculation_step(struct speculation *c, int n, int64_t pos)
{
    for (int i = 0; i < n; i++)
        c->rows[i] = (struct model_chunk){.kv = &c->engine.steps.kv[0],
                                          .ids = &c->ids[i],
                                          .n_tok = 1,
                                          .pos0 = pos + i,
                                          .want_logits = true};
    return model_forward(c->phase, c->rows, n, c->logits);
}

/* The prompt, in steps of one token: keys and values as steps leave them. */
static int prefill(struct speculation *c)
{
    for (int64_t i = 0; i < c->o->n_prompt_tok; i++) {
        c->ids[0] = c->prompt[i];
        TRY(speculation_step(c, 1, i));
    }
    return OK;
}

/* Finds the tokens of greedy decoding, some more than a run has, for the draft to propose. */
static int find_greedy(struct speculation *c)
{
    int64_t n = c->o->n_output_tok + c->o->draft_tok + 1;

    TRY(prefill(c));
    for (int64_t i = 0; i < n; i++) {
        c->greedy[i] = argmax(c, 0);
        c->ids[0] = c->greedy[i];
        TRY(speculation_step(c, 1, c->o->n_prompt_tok + i));
    }
    return OK;
}

/* ---- what is timed: n_output_tok tokens after the first, which the prompt has given ---- */

static int plain(struct speculation *c, double *seconds)
{
    uint64_t t0 = clock_ns();

    c->ids[0] = c->greedy[0];
    for (int64_t i = 0; i < c->o->n_output_tok; i++) {
        TRY(speculation_step(c, 1, c->o->n_prompt_tok + i));
        c->ids[0] = argmax(c, 0);
    }
    *seconds = (double)(clock_ns() - t0) * 1e-9;
    return OK;
}

/* Steps of all rows, as many tokens apart as a whole draft: the mean time of one. */
static int steps(struct speculation *c, double *seconds)
{
    int n = (int)c->o->draft_tok + 1, n_steps = 0;
    uint64_t t0 = clock_ns();

    for (int64_t i = 0; i < c->o->n_output_tok; i += n, n_steps++) {
        memcpy(c->ids, c->greedy + i, (size_t)n * sizeof(*c->ids));
        TRY(speculation_step(c, n, c->o->n_prompt_tok + i));
        (void)argmax(c, 0);
    }
    *seconds = (double)(clock_ns() - t0) * 1e-9 / n_steps;
    return OK;
}

/* From the place `at` in the output on: the model's tokens, wrong from some one on. */
static void propose(struct speculation *c, int64_t at, double chance)
{
    int vocab = model_config_of(c->engine.model)->vocab;

    for (int k = 1; k <= c->o->draft_tok; k++) {
        c->ids[k] = c->greedy[at + k];
        if (rng_f64(&c->rng) >= chance)
            c->ids[k] = (c->ids[k] + 1) % vocab;
    }
}

static int speculate(struct speculation *c, int i, double *seconds)
{
    int64_t at = 0, n_asked = 0, n_accepted = 0, n_different = 0;
    int32_t next = c->greedy[0];
    uint64_t t0 = clock_ns();

    while (at < c->o->n_output_tok) {
        int k = 0;

        propose(c, at, chances[i] / 100.0);
        c->ids[0] = next;
        TRY(speculation_step(c, (int)c->o->draft_tok + 1, c->o->n_prompt_tok + at));
        for (;; k++) { /* row k says what comes after the token k of this step */
            next = argmax(c, k);
            n_different += next != c->greedy[at + k + 1];
            if (k == c->o->draft_tok)
                break;
            n_asked++;
            if (c->ids[k + 1] != next)
                break;
            n_accepted++;
        }
        at += k + 1;
    }
    *seconds = (double)(clock_ns() - t0) * 1e-9 * (double)c->o->n_output_tok / (double)at;
    frame_put(c->f, &c->acceptance[i], (double)n_accepted / (double)n_asked);
    frame_put(c->f, &c->different[i], (double)n_different);
    return OK;
}

/* All begin behind the prompt, whose keys and values stay. */
static int speculation_trial(void *arg, int way, struct measure_trial *t)
{
    struct speculation *c = arg;

    if (way >= CHANCE_0)
        return speculate(c, way - CHANCE_0, &t->seconds);
    return way == PLAIN ? plain(c, &t->seconds) : steps(c, &t->seconds);
}

/* ---- what it comes to ---- */

/* Tokens of a step whose draft of k tokens has acceptance a. */
static double expected_tok(double a, int64_t k)
{
    double sum = 0, term = 1;

    for (int64_t i = 0; i <= k; i++, term *= a)
        sum += term;
    return sum;
}

/* Over plain decoding; `cost`: of a step with its draft, in steps of one row. */
static double predicted(double a, int64_t k, double cost)
{
    return expected_tok(a, k) / cost;
}

/* The acceptance at which a step and its draft pay; NaN: at none. 0: at any. */
static double breakeven_of(int64_t k, double cost)
{
    double lo = 0, hi = 1;

    if (predicted(1, k, cost) < 1)
        return NAN;
    while (hi - lo > 1e-6) {
        double mid = (lo + hi) / 2;

        *(predicted(mid, k, cost) < 1 ? &lo : &hi) = mid;
    }
    return hi > 1e-5 ? hi : 0;
}

/* Where the speed-ups at rising acceptances first cross 1, on a line between two of them. */
static double breakeven_between(const double *a, const double *speedup)
{
    if (speedup[0] >= 1)
        return 0;
    for (int i = 1; i < N_CHANCES; i++)
        if (speedup[i] >= 1)
            return a[i - 1] + (a[i] - a[i - 1]) * (1 - speedup[i - 1]) /
                                  (speedup[i] - speedup[i - 1]);
    return NAN;
}

static void speculation_report(struct speculation *c)
{
    int64_t k = c->o->draft_tok;
    double plain_s = frame_seconds(c->f, PLAIN);
    double one = plain_s / (double)c->o->n_output_tok;
    double charge = c->o->draft_cost * (double)k, worst = 0;
    double speedup[N_CHANCES];
    struct results *r = c->r;

    r->step_cost = frame_seconds(c->f, STEPS) / one;
    r->n_different = 0;
    for (int i = 0; i < N_CHANCES; i++) {
        double a = c->acceptance[i], expected = predicted(a, k, r->step_cost + charge);
        double n_steps = (double)c->o->n_output_tok / expected_tok(a, k);

        speedup[i] =
            plain_s / (frame_seconds(c->f, CHANCE_0 + i) + n_steps * charge * one);
        worst = fmax(worst, fabs(speedup[i] / expected - 1));
        r->n_different = fmax(r->n_different, c->different[i]);
        *frame_named(c->f, "speedup_a%d", chances[i]) = speedup[i];
        *frame_named(c->f, "predicted_a%d", chances[i]) = expected;
        *frame_named(c->f, "acceptance_a%d", chances[i]) = a;
    }
    r->prediction_error = 100 * worst;
    frame_why(c->f, NULL, "a time was not a number");
    r->breakeven_predicted = 100 * breakeven_of(k, r->step_cost + charge);
    r->breakeven_measured = 100 * breakeven_between(c->acceptance, speedup);
    r->breakeven_error = fabs(r->breakeven_measured - r->breakeven_predicted);
    frame_why(c->f, NULL, "it pays at no acceptance");
    study_engine_report(c->out, &c->engine);
}

static int speculation_run(struct speculation *c)
{
    const struct opts *o = c->o;
    int64_t n_out = o->n_output_tok + o->draft_tok + 1;
    const struct model_bench_opts eo = {.precision = (enum kern_precision)o->precision,
                                        .deterministic = o->deterministic,
                                        .n_seqs = 1,
                                        .one_rank = true,
                                        .max_tok =
                                            o->n_prompt_tok + n_out + o->draft_tok + 1,
                                        .step_tok = o->draft_tok + 1,
                                        .seed = (uint64_t)o->seed};
    int vocab;

    FRAME_CLOSE(c->f, model_bench_close, &c->engine);
    FRAME_CLOSE(c->f, model_phase_close, &c->phase);
    TRY(study_engine_open(&c->engine, o->model, &eo));
    TRY(study_engine_phase(&c->engine, &c->phase, 1, c->engine.budget.n));
    vocab = model_config_of(c->engine.model)->vocab;
    c->prompt = frame_new(c->f, (size_t)o->n_prompt_tok, sizeof(*c->prompt));
    c->greedy = frame_new(c->f, (size_t)n_out, sizeof(*c->greedy));
    c->logits =
        frame_new(c->f, (size_t)(o->draft_tok + 1) * (size_t)vocab, sizeof(*c->logits));
    rng_init(&c->rng, (uint64_t)o->seed, "draft");
    for (int64_t i = 0; i < o->n_prompt_tok; i++)
        c->prompt[i] = (int32_t)rng_below(&c->rng, (uint64_t)vocab);
    TRY(find_greedy(c));
    TRY(frame_rounds(c->f, "all acceptances in turn", N_WAYS, o->rounds,
                     speculation_trial, c));
    speculation_report(c);
    return OK;
}

STUDY(speculation, "from which acceptance of a draft on speculative decoding pays");
