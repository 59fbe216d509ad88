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
#include "experiments/study/support/compare.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/rows.h"

#define DRAFT_MAX 32

struct opts {
    char *model;
    int precision;
    int64_t draft_tok, n_prompt_tok, n_output_tok, rounds, seed;
    double draft_cost;
    bool deterministic;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_PRECISION,
    OPT_ROW(INT, draft_tok, "4", "Tokens that the draft proposes for each step.",
            .min = 1, .max = DRAFT_MAX),
    OPT_ROW(F64, draft_cost, "0",
            "Time that a token of the draft is charged with, as a share of a step of one "
            "row.",
            .min = 0, .max = 10),
    OPT_ROW(INT, n_prompt_tok, "64", "Prompt tokens.", .min = 1, .max = 65536),
    OPT_ROW(INT, n_output_tok, "192", "Output tokens of a run.", .min = 8, .max = 65536),
    OPT_ROW(INT, rounds, "5", "Rounds of all acceptances, in turn.", .min = 3, .max = 99),
    OPT_ROW(BOOL, deterministic, "false",
            "Compute the same bits in a step of several rows as in one of one row."),
    OPT_ROW(INT, seed, "1", "Seed of the prompt and of what the draft gets wrong."),
    {0},
};

/* Chances with which a proposed token is the model's. */
#define CHANCES(X)     X(0) X(20) X(40) X(60) X(80) X(100)
#define COUNT(percent) +1
enum { N_CHANCES = 0 CHANCES(COUNT) };
#define VALUE(percent) percent,
static const int chances[] = {CHANCES(VALUE)}; /* in % */
#define METRICS(percent)                                                                 \
    {"speedup_a" #percent, "x", "higher",                                                \
     "decode speed with a draft that is right " #percent " % of the time / without"},    \
        {"predicted_a" #percent, "x", "", "the same as predicted, for its acceptance"},  \
        {"acceptance_a" #percent, "", "", "its acceptance"},

static const struct study_metric metrics[] = {
    CHANCES(METRICS){"step_cost", "x", "lower",
                     "time of a step of draft_tok + 1 rows / of one row"},
    {"breakeven_predicted", "%", "lower",
     "acceptance from which the draft pays, by the times of steps"},
    {"breakeven_measured", "%", "lower", "the same, where the measured speeds cross 1"},
    {"breakeven_error", "points", "lower", "|measured - predicted|"},
    {"prediction_error", "%", "lower", "most |measured / predicted - 1| of a speed-up"},
    {"n_different", "tok", "lower",
     "output tokens that are not those of greedy decoding"},
    {0},
};

/* What is timed in turn: without a draft, single steps of many rows, and each chance. */
enum { PLAIN, STEPS, CHANCE_0, N_WAYS = CHANCE_0 + N_CHANCES };
enum { ACCEPTANCE, DIFFERENT, N_PARTS };

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct model_bench engine;
    struct model_phase *phase;
    struct study_compare ways;
    int32_t *prompt, *greedy; /* [n_prompt_tok], [n_output_tok + draft_tok + 1] */
    float *logits;            /* [draft_tok + 1, vocab] */
    struct model_chunk rows[DRAFT_MAX + 1];
    int32_t ids[DRAFT_MAX + 1];
    struct rng rng;
};

static int32_t argmax(const struct cell *c, int row)
{
    int vocab = model_config_of(c->engine.model)->vocab;
    const struct kern_variant *v = model_kern(c->engine.model)->v[KERN_ARGMAX];

    return (int32_t)v->fn.argmax(c->logits + (int64_t)row * vocab, vocab);
}

/* A step of the n tokens in c->ids, the first at place pos of the sequence: rows of one sequence,
 * each of which attends to those before it. */
static int step(struct cell *c, int n, int64_t pos)
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
static int prefill(struct cell *c)
{
    for (int64_t i = 0; i < c->o->n_prompt_tok; i++) {
        c->ids[0] = c->prompt[i];
        TRY(step(c, 1, i));
    }
    return OK;
}

/* What greedy decoding gives, some tokens more than a run has, for the draft to propose. */
static int find_greedy(struct cell *c)
{
    int64_t n = c->o->n_output_tok + c->o->draft_tok + 1;

    TRY(prefill(c));
    for (int64_t i = 0; i < n; i++) {
        c->greedy[i] = argmax(c, 0);
        c->ids[0] = c->greedy[i];
        TRY(step(c, 1, c->o->n_prompt_tok + i));
    }
    return OK;
}

/* ---- what is timed: n_output_tok tokens after the first, which the prompt has given ---- */

static int plain(struct cell *c, double *seconds)
{
    uint64_t t0 = clock_ns();

    c->ids[0] = c->greedy[0];
    for (int64_t i = 0; i < c->o->n_output_tok; i++) {
        TRY(step(c, 1, c->o->n_prompt_tok + i));
        c->ids[0] = argmax(c, 0);
    }
    *seconds = (double)(clock_ns() - t0) * 1e-9;
    return OK;
}

/* Steps of all rows, as many tokens apart as a whole draft: the mean time of one. */
static int steps(struct cell *c, double *seconds)
{
    int n = (int)c->o->draft_tok + 1, n_steps = 0;
    uint64_t t0 = clock_ns();

    for (int64_t i = 0; i < c->o->n_output_tok; i += n, n_steps++) {
        memcpy(c->ids, c->greedy + i, (size_t)n * sizeof(*c->ids));
        TRY(step(c, n, c->o->n_prompt_tok + i));
        (void)argmax(c, 0);
    }
    *seconds = (double)(clock_ns() - t0) * 1e-9 / n_steps;
    return OK;
}

/* From the place `at` in the output on: the model's tokens, wrong from some one on. */
static void propose(struct cell *c, int64_t at, double chance)
{
    int vocab = model_config_of(c->engine.model)->vocab;

    for (int k = 1; k <= c->o->draft_tok; k++) {
        c->ids[k] = c->greedy[at + k];
        if (rng_f64(&c->rng) >= chance)
            c->ids[k] = (c->ids[k] + 1) % vocab;
    }
}

static int speculate(struct cell *c, double chance, double *seconds)
{
    int64_t at = 0, n_asked = 0, n_accepted = 0, n_different = 0;
    int32_t next = c->greedy[0];
    uint64_t t0 = clock_ns();

    while (at < c->o->n_output_tok) {
        int k = 0;

        propose(c, at, chance);
        c->ids[0] = next;
        TRY(step(c, (int)c->o->draft_tok + 1, c->o->n_prompt_tok + at));
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
    study_compare_put(&c->ways, ACCEPTANCE, (double)n_accepted / (double)n_asked);
    study_compare_put(&c->ways, DIFFERENT, (double)n_different);
    return OK;
}

/* All begin behind the prompt, whose keys and values stay. */
static int trial(void *arg, int way, struct measure_trial *t)
{
    struct cell *c = arg;

    if (way >= CHANCE_0)
        return speculate(c, chances[way - CHANCE_0] / 100.0, &t->seconds);
    study_compare_put(&c->ways, ACCEPTANCE, 0);
    study_compare_put(&c->ways, DIFFERENT, 0);
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
static double crossing(const double *a, const double *speedup)
{
    if (speedup[0] >= 1)
        return 0;
    for (int i = 1; i < N_CHANCES; i++)
        if (speedup[i] >= 1)
            return a[i - 1] + (a[i] - a[i - 1]) * (1 - speedup[i - 1]) /
                                  (speedup[i] - speedup[i - 1]);
    return NAN;
}

static void report(const struct cell *c)
{
    const struct study_compare *w = &c->ways;
    int64_t k = c->o->draft_tok;
    double one = w->time[PLAIN].estimate / (double)c->o->n_output_tok, different = 0;
    double step_cost = w->time[STEPS].estimate / one;
    double charge = c->o->draft_cost * (double)k, cost = step_cost + charge, worst = 0;
    double a[N_CHANCES], speedup[N_CHANCES], by_times, by_speeds;
    char name[32];

    for (int i = 0; i < N_CHANCES; i++) {
        double s, n_steps, says;

        a[i] = study_compare_median(w, CHANCE_0 + i, ACCEPTANCE);
        n_steps = (double)c->o->n_output_tok / expected_tok(a[i], k);
        s = w->time[CHANCE_0 + i].estimate + n_steps * charge * one;
        speedup[i] = w->time[PLAIN].estimate / s;
        says = predicted(a[i], k, cost);
        worst = fmax(worst, fabs(speedup[i] / says - 1));
        different = fmax(different, study_compare_median(w, CHANCE_0 + i, DIFFERENT));
        snprintf(name, sizeof(name), "speedup_a%d", chances[i]);
        study_value(c->out, name, speedup[i], "a time was not a number");
        snprintf(name, sizeof(name), "predicted_a%d", chances[i]);
        study_value(c->out, name, says, "a time was not a number");
        snprintf(name, sizeof(name), "acceptance_a%d", chances[i]);
        study_value(c->out, name, a[i], NULL);
    }
    by_times = breakeven_of(k, cost);
    by_speeds = crossing(a, speedup);
    study_value(c->out, "step_cost", step_cost, "a time was not a number");
    study_value(c->out, "breakeven_predicted", 100 * by_times,
                "it pays at no acceptance");
    study_value(c->out, "breakeven_measured", 100 * by_speeds,
                "it pays at no acceptance");
    study_value(c->out, "breakeven_error", 100 * fabs(by_speeds - by_times),
                "it pays at no acceptance");
    study_value(c->out, "prediction_error", 100 * worst, "a time was not a number");
    study_value(c->out, "n_different", different, NULL);
    study_engine_report(c->out, &c->engine);
}

static int run(struct cell *c)
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

    TRY(study_engine_open(&c->engine, o->model, &eo));
    TRY(study_engine_phase(&c->engine, &c->phase, 1, c->engine.budget.n));
    vocab = model_config_of(c->engine.model)->vocab;
    c->prompt = mem_new(MEM_HARNESS, (size_t)o->n_prompt_tok, sizeof(*c->prompt));
    c->greedy = mem_new(MEM_HARNESS, (size_t)n_out, sizeof(*c->greedy));
    c->logits = mem_new(MEM_HARNESS, (size_t)(o->draft_tok + 1) * (size_t)vocab,
                        sizeof(*c->logits));
    if (!c->prompt || !c->greedy || !c->logits)
        return ERR_NOMEM;
    rng_init(&c->rng, (uint64_t)o->seed, "draft");
    for (int64_t i = 0; i < o->n_prompt_tok; i++)
        c->prompt[i] = (int32_t)rng_below(&c->rng, (uint64_t)vocab);
    TRY(find_greedy(c));
    c->ways = (struct study_compare){.doing = "all acceptances in turn"};
    TRY(study_compare(&c->ways, c->out, N_WAYS, o->rounds, trial, c));
    report(c);
    return OK;
}

static void end(struct cell *c)
{
    study_compare_close(&c->ways);
    model_phase_close(&c->phase);
    model_bench_close(&c->engine);
    mem_free(c->prompt);
    mem_free(c->greedy);
    mem_free(c->logits);
}

STUDY(speculation, "from which acceptance of a draft on speculative decoding pays");
